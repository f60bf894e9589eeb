"""One file per public image set, and one for folders of your own."""
