"""Every layout is read as documented, and every kind of damage is one sentence that names the file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

import image_trees as trees
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import quick_learner, run_cli
from efcil import data
from efcil.config import DataConfig, StreamConfig
from efcil.data.dataset import kept_for_test
from efcil.data.images import EXTENSIONS
from efcil.data.sets import cifar100, cifar100_python, dn4il, folder, imagenet, imagenet_subset, tiny_imagenet
from efcil.data.stream import Stream
from efcil.errors import Notice, UserError

COUNTS = {"train": 300, "test": 200}


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated sets have fewer images and classes than the real ones."""
    monkeypatch.setattr(cifar100, "COUNTS", COUNTS)
    for module, classes in ((tiny_imagenet, 3), (imagenet, 3), (imagenet_subset, 2), (dn4il, 2)):
        monkeypatch.setattr(module, "CLASSES", classes)


def fails(load: Callable[..., object], root: Path, *words: str) -> str:
    """Loading raises one sentence with these words."""
    with pytest.raises(UserError) as caught:
        load(root, None)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert message.endswith(".") and "\n" not in message
    return message


# ---------------------------------------------------------------- CIFAR-100


@pytest.mark.parametrize("make", [trees.cifar_binary, trees.cifar_python])
def test_cifar_layouts_agree(tmp_path: Path, make: Callable[..., Path]) -> None:
    inside = make(tmp_path, COUNTS)
    for root in (tmp_path, inside):
        loaded = cifar100.load(root, None)
        assert (len(loaded.train), len(loaded.test), len(loaded.names)) == (300, 200, 100)
        assert loaded.names[3] == "class03"
        assert loaded.train_labels.tolist() == [i % 100 for i in range(300)]
        pixels = trees.cifar_pixels(300).reshape(300, 3, 32, 32)
        assert np.array_equal(loaded.train.batch(torch.arange(300)).numpy(), pixels)
    assert cifar100.load(tmp_path, 16).train.size == 16


def test_cifar_binary_damage(tmp_path: Path) -> None:
    inside = trees.cifar_binary(tmp_path, COUNTS)
    content = (inside / "train.bin").read_bytes()
    (inside / "train.bin").write_bytes(content[:-1])
    fails(cifar100.load, tmp_path, "train.bin", "922,199 bytes instead of 922,200", "efcil data get cifar100")
    (inside / "train.bin").write_bytes(content[:1] + bytes([100]) + content[2:])
    fails(cifar100.load, tmp_path, "train", "labels above 99")
    (inside / "train.bin").write_bytes(content)
    (inside / "fine_label_names.txt").write_text("apple\n")
    fails(cifar100.load, tmp_path, "names 1 classes instead of 100")
    (inside / "test.bin").unlink()
    (inside / "fine_label_names.txt").unlink()
    fails(cifar100.load, tmp_path, "fine_label_names.txt", "No such file")
    (inside / "fine_label_names.txt").write_text("\n".join(map(str, range(100))))
    fails(cifar100.load, tmp_path, "test.bin is missing")


def test_cifar_missing_altogether(tmp_path: Path) -> None:
    fails(cifar100.load, tmp_path, "cifar-100-binary", "efcil data get cifar100", "--data-root")
    fails(cifar100.load, None, "--data-root")  # type: ignore[arg-type]


def test_hostile_pickle_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside = trees.cifar_python(tmp_path, COUNTS)
    (inside / "train").write_bytes(trees.hostile_pickle())
    fails(cifar100.load, tmp_path, "train", "may be harmful", "system")
    assert not (tmp_path / "harmed.txt").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"\x80\x02U\xff", "damaged"),
        (pickle.dumps([1, 2], protocol=2), "dictionary"),
        (pickle.dumps({"fine_labels": [1]}, protocol=2), "arrays of CIFAR-100"),
        (pickle.dumps({"data": 3, "fine_labels": [1]}, protocol=2), "arrays of CIFAR-100"),
        (
            b"}S'data'\ncnumpy\nndarray\n)R(I1\n(I9\ntcnumpy\ndtype\n(S'u1'\ntRI00\nI999999999\ntbsS'fine_labels'\n]s.",
            "bytes",
        ),
        (b"]r\x00\x00\x00\x40.", "dictionary"),  # a memo of 16 GB
        (b"cbuiltins\neval\n(S'1'\ntR.", "may be harmful (it wants to run builtins.eval)"),
        (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"cnumpy\nndarray\n}S'state'\nI1\nsb.", "damaged"),  # changing the stand-in itself
    ],
)
def test_damaged_pickles(tmp_path: Path, content: bytes, words: str) -> None:
    inside = trees.cifar_python(tmp_path, COUNTS)
    (inside / "test").write_bytes(content)
    fails(cifar100.load, tmp_path, "test", words)


def test_changed_bytes_in_a_pickle_raise_nothing_else(tmp_path: Path) -> None:
    whole = trees.python2_pickle({"data": trees.cifar_pixels(1)[:, :12], "fine_labels": [3]})
    rng, path = random.Random(0), tmp_path / "train"
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        with contextlib.suppress(UserError):
            cifar100_python.read_split(path)


def test_pickle_of_the_wrong_shape_or_type(tmp_path: Path) -> None:
    inside = trees.cifar_python(tmp_path, COUNTS)
    short = {"data": trees.cifar_pixels(299), "fine_labels": list(range(299))}
    (inside / "train").write_bytes(trees.python2_pickle(short))
    fails(cifar100.load, tmp_path, "train", "does not hold 300 images")
    whole = trees.python2_pickle({"data": trees.cifar_pixels(300), "fine_labels": [0] * 300})
    (inside / "train").write_bytes(whole.replace(b"U\x02u1", b"U\x02O8"))
    fails(cifar100.load, tmp_path, "train", "not a plain array of bytes")
    (inside / "train").write_bytes(whole)
    (inside / "meta").write_bytes(trees.python2_pickle({"fine_label_names": 3}))
    fails(cifar100.load, tmp_path, "meta", "class names")
    (inside / "train").unlink()
    (inside / "meta").write_bytes(trees.python2_pickle({"fine_label_names": ["a"]}))
    fails(cifar100.load, tmp_path, "train is missing")


# ---------------------------------------------------------------- Tiny-ImageNet


def test_tiny_imagenet(tmp_path: Path) -> None:
    trees.tiny_imagenet(tmp_path)
    loaded = tiny_imagenet.load(tmp_path, None)
    assert loaded.names == sorted(trees.WNIDS)
    assert loaded.train_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [loaded.names[label] for label in loaded.test_labels] == trees.WNIDS
    assert loaded.train.batch(torch.tensor([0])).shape == (1, 3, 64, 64)


def test_tiny_imagenet_damage(tmp_path: Path) -> None:
    inside = trees.tiny_imagenet(tmp_path)
    annotations = inside / "val" / "val_annotations.txt"
    good = annotations.read_text()
    annotations.write_text(good.replace(trees.WNIDS[1], "n99999999"))
    fails(tiny_imagenet.load, tmp_path, "val_annotations.txt", "val_1.JPEG", "n99999999", "wnids.txt")
    annotations.write_text(good.replace("val_1", "val_7"))
    fails(tiny_imagenet.load, tmp_path, "val_7.JPEG", "is not in")
    annotations.write_text(good + good)
    fails(tiny_imagenet.load, tmp_path, "val_0.JPEG twice")
    annotations.write_text(good.rpartition("val_")[0])
    fails(tiny_imagenet.load, tmp_path, "names 2 of the 3 images")
    annotations.write_bytes(b"\xff\xfe\x00\xd8")
    fails(tiny_imagenet.load, tmp_path, "not a text file")
    annotations.write_text("")
    fails(tiny_imagenet.load, tmp_path, "val_annotations.txt is empty")
    annotations.unlink()
    fails(tiny_imagenet.load, tmp_path, "val_annotations.txt", "No such file")
    for image in (inside / "train" / trees.WNIDS[0] / "images").iterdir():
        image.unlink()
    fails(tiny_imagenet.load, tmp_path, str(inside / "train" / trees.WNIDS[0]), "no images")
    (inside / "train" / trees.WNIDS[0] / "images").rmdir()
    fails(tiny_imagenet.load, tmp_path, "cannot be read", trees.WNIDS[0])
    (inside / "wnids.txt").write_text("n1\n")
    fails(tiny_imagenet.load, tmp_path, "wnids.txt names 1 classes instead of 3")
    (inside / "wnids.txt").unlink()
    fails(tiny_imagenet.load, tmp_path, "wnids.txt does not exist", "efcil data get tiny-imagenet")


# ---------------------------------------------------------------- ImageNet


def test_imagenet_is_read_at_256(tmp_path: Path) -> None:
    inside = trees.imagenet(tmp_path)
    for root in (tmp_path, inside):
        loaded = imagenet.load(root, None)
        assert loaded.names == sorted(trees.WNIDS)
        assert (len(loaded.train), len(loaded.test), loaded.train.size) == (9, 3, 256)
    assert imagenet.load(tmp_path, 32).train.batch(torch.tensor([0, 5])).shape == (2, 3, 32, 32)


def test_imagenet_damage(tmp_path: Path) -> None:
    inside = trees.imagenet(tmp_path)
    trees.class_folders(inside / "train", ["n5"])
    fails(imagenet.load, tmp_path, "different classes (n5)")
    trees.class_folders(inside / "val", ["n5"])
    fails(imagenet.load, tmp_path, "4 class folders instead of 3")
    for image in (inside / "val" / "n5").iterdir():
        image.unlink()
    fails(imagenet.load, tmp_path, str(inside / "val" / "n5"), "no images")
    for image in (inside / "val" / trees.WNIDS[0]).iterdir():
        image.unlink()
    fails(imagenet.load, tmp_path, "n00000002, n5", "no images")
    fails(imagenet.load, tmp_path / "elsewhere", "does not exist")


def test_flat_validation_folder(tmp_path: Path) -> None:
    inside = tmp_path / "imagenet"
    trees.class_folders(inside / "train", trees.WNIDS)
    trees.picture(inside / "val" / "ILSVRC2012_val_00000001.JPEG")
    fails(imagenet.load, tmp_path, str(inside / "val"), "no class folders")
    (inside / "val" / "ILSVRC2012_val_00000001.JPEG").unlink()
    (inside / "val").rmdir()
    fails(imagenet.load, tmp_path, f"no folder {inside / 'val'}")


def test_imagenet_subset_keeps_the_order_and_the_checksum_of_the_list(tmp_path: Path) -> None:
    inside = trees.imagenet(tmp_path)
    text = f"{trees.WNIDS[2]}\n{trees.WNIDS[1]}\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    for place in (tmp_path, inside):  # beside ImageNet or in its folder
        (place / "imagenet-subset.txt").write_text(text)
        loaded = imagenet_subset.load(tmp_path, 8)
        assert loaded.names == [trees.WNIDS[2], trees.WNIDS[1]]
        assert loaded.sources == {"imagenet-subset.txt": digest}
        assert loaded.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert trees.WNIDS[2] in str(loaded.train.source.paths[0])  # type: ignore[union-attr]
        (place / "imagenet-subset.txt").unlink()


def test_imagenet_subset_damage(tmp_path: Path) -> None:
    trees.imagenet(tmp_path)
    file = tmp_path / "imagenet-subset.txt"
    fails(imagenet_subset.load, tmp_path, f"{file} does not exist", "one per line")
    file.write_text(trees.WNIDS[0])
    fails(imagenet_subset.load, tmp_path, str(file), "names 1 classes instead of 2")
    file.write_text(f"{trees.WNIDS[0]}\n{trees.WNIDS[0]}\n")
    fails(imagenet_subset.load, tmp_path, f"{trees.WNIDS[0]} more than once")
    file.write_text(f"{trees.WNIDS[0]}\nn42\n")
    fails(imagenet_subset.load, tmp_path, "'n42'", str(tmp_path / "imagenet" / "train"))
    file.write_text(f"{trees.WNIDS[0]}\n../val\n")
    fails(imagenet_subset.load, tmp_path, "'../val'")
    file.write_text(f"{trees.WNIDS[0]}\n{trees.WNIDS[1]}\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    beside = tmp_path / "imagenet-subset.txt.sha256"
    beside.write_text(f"{digest.upper()}  imagenet-subset.txt\n")
    assert imagenet_subset.load(tmp_path, 8).sources["imagenet-subset.txt"] == digest
    beside.write_text("0" * 64)
    fails(imagenet_subset.load, tmp_path, digest, "imagenet-subset.txt.sha256")


# ---------------------------------------------------------------- DN4IL


@pytest.mark.parametrize("lists", ["", "splits"])
def test_dn4il(tmp_path: Path, lists: str) -> None:
    trees.dn4il(tmp_path, lists)
    loaded = dn4il.load(tmp_path, None)
    assert loaded.names[:4] == ["clipart/zebra", "clipart/axe", "infograph/zebra", "infograph/axe"]
    assert loaded.domains == [domain for domain in dn4il.DOMAINS for _ in range(2)]
    assert (len(loaded.train), len(loaded.test), loaded.train.size) == (24, 12, 256)
    assert loaded.train_labels.tolist() == [label for label in range(12) for _ in range(2)]
    assert len(loaded.sources) == 12
    assert Stream(loaded, StreamConfig(kind="domain"), seed=0).classes_per_task == [2] * 6


def test_dn4il_damage(tmp_path: Path) -> None:
    inside = trees.dn4il(tmp_path)
    file = inside / "painting_train.txt"
    good = file.read_text()
    for line in (
        "painting/zebra/train_0.jpg",
        "real/zebra/train_0.jpg 0",
        "painting/../zebra 0",
        "zebra.jpg 0",
        "x y z",
    ):
        file.write_text(f"{good}{line}\n")
        fails(dn4il.load, tmp_path, str(file), repr(line), "painting/class/image label")
    file.write_text(good.replace("axe/train_1.jpg 1", "axe/train_1.jpg 0"))
    fails(dn4il.load, tmp_path, "label 0 for axe and for zebra")
    file.write_text(good.replace("axe/train_1.jpg 1", "axe/train_1.jpg 2"))
    fails(dn4il.load, tmp_path, "3 labels, 2 classes")
    file.write_text(good + "painting/zebra/train_0.jpg 0\n")
    fails(dn4il.load, tmp_path, "second time")
    file.write_text(good + "painting/zebra/test_0.jpg 0\n")
    fails(dn4il.load, tmp_path, "painting_test.txt", "second time")
    file.write_text(good.replace("train_0", "gone"))
    fails(dn4il.load, tmp_path, "painting/zebra/gone.jpg", "unpack the domain painting again")
    file.unlink()
    fails(dn4il.load, tmp_path, "painting_train.txt", "No such file")
    fails(dn4il.load, tmp_path / "nowhere", "clipart does not exist")


# ---------------------------------------------------------------- your own folders


def test_folder_splits_off_about_a_fifth_by_name(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["cat", "ant"], count=10)
    loaded = data.load(DataConfig(name="folder"), tmp_path, 8)
    assert loaded.names == ["ant", "cat"]
    assert loaded.train_labels.tolist() == [0] * 9 + [1] * 6 and loaded.test_labels.tolist() == [0] + [1] * 4
    for label, name, base in ((0, "ant", 40), (1, "cat", 0)):
        kept = kept_for_test([f"{name}_{index}.png" for index in range(10)])
        shown = loaded.test.batch((loaded.test_labels == label).nonzero().squeeze(1))[:, 0, 7, 7].tolist()
        assert shown == [base + index for index in range(10) if kept[index]]


def test_the_split_is_the_same_for_ever() -> None:
    """Another hash would change every result on folders."""
    kept = kept_for_test([f"{index}.jpg" for index in range(10)])
    assert [index for index in range(10) if kept[index]] == [0]
    large = kept_for_test([f"IMG_{index:05}.jpg" for index in range(20_000)])
    assert 0.19 < sum(large) / len(large) < 0.21


file_names = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=2, max_size=12, unique=True
)


@given(file_names, st.randoms(use_true_random=False))
def test_removing_a_file_moves_no_other_between_training_and_test(files: list[str], chance: random.Random) -> None:
    before = dict(zip(files, kept_for_test(files), strict=True))
    assert set(before.values()) == {True, False}
    gone = chance.choice(files)
    left = [file for file in files if file != gone]
    chance.shuffle(left)  # nor does the order matter
    if len(left) < 2:
        return
    after = dict(zip(left, kept_for_test(left), strict=True))
    moved = [file for file in left if after[file] != before[file]]
    one_sided = len({before[file] for file in left}) == 1
    assert len(moved) == (1 if one_sided else 0)


def test_a_name_counts_the_same_however_the_disk_writes_it() -> None:
    others = [f"{index}.png" for index in range(20)]
    for name in ("é.png", "Å.png", "ü1.png", "ü2.png", "ñ.png", "ñ2.png"):
        composed, decomposed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
        assert composed != decomposed
        assert kept_for_test([composed, *others]) == kept_for_test([decomposed, *others])
        assert sorted(kept_for_test([composed, decomposed])) == [False, True]


def test_what_systems_leave_behind_is_not_looked_at(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["cat", "ant"], count=4)
    for inside in ("", "cat"):
        (tmp_path / inside / "__MACOSX").mkdir()
        (tmp_path / inside / "__MACOSX" / "._x.png").write_bytes(b"")
        (tmp_path / inside / ".hidden").mkdir()
        for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._cat_0.png"):
            (tmp_path / inside / name).write_bytes(b"")
    assert data.load(DataConfig(name="folder"), tmp_path, 8).names == ["ant", "cat"]  # and no warning


def test_what_is_left_out_is_counted_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "extensions", lambda: frozenset(EXTENSIONS))  # as without AVIF and HEIC
    trees.class_folders(tmp_path, ["cat", "ant"], count=4)
    for name in ("cat/1.HEIC", "cat/2.heic", "ant/1.txt", "ant/README", "ant/1.avif", "list.csv", "photo.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "ant" / "more").mkdir()
    (tmp_path / "cat" / "folder.png").mkdir()
    said = (
        f"In {tmp_path} only images directly inside a class folder are read; left out: 1 file without an ending, "
        "1 .avif file (to read .avif, install a Pillow that has AVIF, such as the wheels of 11.3 or newer), "
        "2 .heic files (to read .heic and .heif, run: pip install 'efcil[heif]'), 1 .txt file, "
        "2 files beside the class folders, 2 folders inside class folders."
    )
    with pytest.warns(Notice) as caught:
        loaded = data.load(DataConfig(name="folder"), tmp_path, 8)
    assert [str(one.message) for one in caught] == [said] == loaded.notes
    assert len(loaded.train) + len(loaded.test) == 8
    with pytest.warns(Notice) as caught:
        quick_learner(image_size=8).partial_fit(tmp_path)
    assert [str(one.message) for one in caught] == [said] and caught[0].filename == __file__


def test_what_is_left_out_of_parts_and_domains_is_counted_too(tmp_path: Path) -> None:
    for part in ("train", "test"):
        trees.class_folders(tmp_path / part, ["a", "b"], count=2)
        (tmp_path / part / "a" / "x.txt").write_text("")
    (tmp_path / "list.txt").write_text("")
    assert [note.partition(" only ")[0] for note in folder.load(tmp_path, 8).notes] == [
        f"In {tmp_path / 'train'}",
        f"In {tmp_path / 'test'}",
    ]
    (note,) = folder.load_domains(tmp_path, 8).notes
    assert note.endswith("left out: 2 .txt files, 1 file beside the class folders.")


def test_an_empty_class_says_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "extensions", lambda: frozenset(EXTENSIONS))
    trees.class_folders(tmp_path, ["cat"], count=4)
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "1.heic").write_bytes(b"")
    fails(folder.load, tmp_path, "dog holds no images", "1 .heic file", "pip install 'efcil[heif]'")


def test_a_run_and_a_command_say_what_was_left_out(tmp_path: Path) -> None:
    trees.class_folders(tmp_path / "own", ["cat", "ant"], count=4)
    (tmp_path / "own" / "cat" / "notes.txt").write_text("")
    quick = ["--set", "first.epochs=1", "--set", "incremental.epochs=1", "--set", "width=4", "--set", "image_size=8"]
    arguments = ["--data-root", tmp_path / "own", "--method", "finetune", "--out", tmp_path / "runs"]
    done = run_cli("run", "folder-cold2", *arguments, *quick)
    said = f"efcil: In {tmp_path / 'own'} only images directly inside a class folder are read; left out: 1 .txt file."
    assert done.returncode == 0 and done.stderr.strip() == said


def test_folder_with_parts(tmp_path: Path) -> None:
    trees.class_folders(tmp_path / "train", ["a", "b"], count=3)
    trees.class_folders(tmp_path / "val", ["a", "b"], count=1)
    loaded = folder.load(tmp_path, 8)
    assert (len(loaded.train), len(loaded.test)) == (6, 2)
    (tmp_path / "val" / "b").rename(tmp_path / "val" / "c")
    fails(folder.load, tmp_path, "different classes (b, c)")


def test_folder_damage(tmp_path: Path) -> None:
    fails(folder.load, tmp_path / "none", "does not exist")
    fails(folder.load, tmp_path, "no class folders")
    (tmp_path / "a").mkdir()
    fails(folder.load, tmp_path, str(tmp_path / "a"), "no images")
    trees.picture(tmp_path / "a" / "1.png")
    fails(folder.load, tmp_path, "'a'", "at least 2")


def test_domains_name_classes_by_domain(tmp_path: Path) -> None:
    for domain in ("photo", "art"):
        trees.class_folders(tmp_path / domain, ["dog", "cat"], count=2)
    loaded = folder.load_domains(tmp_path, 8)
    assert loaded.names == ["art/cat", "art/dog", "photo/cat", "photo/dog"]
    assert loaded.domains == ["art", "art", "photo", "photo"]
    assert loaded.train_labels.tolist() == [0, 1, 2, 3]


def test_corrupt_image_is_named(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=5, suffix=".jpg")
    whole = (tmp_path / "a" / "a_1.jpg").read_bytes()
    (tmp_path / "a" / "a_1.jpg").write_bytes(whole[: len(whole) - 30])
    with pytest.raises(UserError, match=r"a_1\.jpg.*replace or remove"):
        data.load(DataConfig(name="folder"), tmp_path, 8)


# ---------------------------------------------------------------- by name


def test_every_set_is_described() -> None:
    assert list(data.DATA_SETS) == list(data.LOADERS)
    assert [name for name, described in data.DATA_SETS.items() if described.download] == ["cifar100", "tiny-imagenet"]
    with pytest.raises(UserError, match="did you mean cifar100"):
        data.load(DataConfig(name="cifar10"), None)


def test_class_without_test_images_is_refused(tmp_path: Path) -> None:
    inside = trees.tiny_imagenet(tmp_path)
    annotations = inside / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace(trees.WNIDS[1], trees.WNIDS[0]))
    with pytest.raises(UserError, match=f"{trees.WNIDS[1]} has no test images.*efcil data check tiny-imagenet"):
        data.load(DataConfig(name="tiny-imagenet"), tmp_path)


def test_limit_decodes_only_what_is_kept(tmp_path: Path) -> None:
    trees.class_folders(tmp_path, ["a", "b"], count=10)
    (tmp_path / "a" / "a_7.png").write_bytes(b"never opened")
    loaded = data.load(DataConfig(name="folder", images_per_class=3), tmp_path, 8)
    assert loaded.train_labels.tolist() == [0, 0, 0, 1, 1, 1] and len(loaded.train.batch(torch.arange(6))) == 6


def test_digits() -> None:
    pytest.importorskip("sklearn")
    loaded = data.load(DataConfig(name="digits"), None)
    assert (len(loaded.train) + len(loaded.test), len(loaded.names)) == (1797, 10)


# ---------------------------------------------------------------- the real sets


def real(name: str) -> Path:
    root = os.environ.get("EFCIL_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"set EFCIL_DATA to a folder that holds {name} to test with the real images")
    return Path(root)


def test_real_cifar100(monkeypatch: pytest.MonkeyPatch) -> None:
    root = real("cifar-100-binary")
    monkeypatch.setattr(cifar100, "COUNTS", {"train": 50_000, "test": 10_000})
    loaded = data.load(DataConfig(name="cifar100"), root)
    train, test = loaded.counts()
    assert set(train.tolist()) == {500} and set(test.tolist()) == {100}
    assert loaded.names[0] == "apple" and loaded.names[99] == "worm"
    mean = torch.cat([part.double().mean((2, 3)) for part in loaded.train.batches(torch.arange(10_000).split(1000))])
    assert np.allclose(mean.mean(0) / 255, [0.5071, 0.4865, 0.4409], atol=0.01)  # the well-known channel means


def test_real_pacs() -> None:
    root = real("pacs") / "pacs"
    loaded = folder.load_domains(root, None)
    assert len(loaded.names) == len(set(loaded.names)) == 28 and "sketch/dog" in loaded.names
    assert len(dict.fromkeys(loaded.domains or [])) == 4
    assert len(loaded.train) + len(loaded.test) > 9000
    assert len(loaded.limited(10).in_memory().train.batch(torch.arange(280))) == 280
    with Image.open(next((root / "art_painting" / "dog").iterdir())) as first:
        assert first.size == (64, 64)
