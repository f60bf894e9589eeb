"""What may be searched, and the sentences for what may not."""

from __future__ import annotations

import optuna
import pytest

from efcil.bench.search import Dimension, checked, distinct, parse_search
from efcil.errors import UserError


def search(text: str, method: str = "efc++") -> Dimension:
    return checked(parse_search(text), "digits-cold5", method, 0, ["width=8"])


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("options.eta=0.01..1:log", Dimension("options.eta", 0.01, 1.0, log=True)),
        ("incremental.lr=1e-4..1e-2", Dimension("incremental.lr", 1e-4, 1e-2)),
        ("options.lambda_efm=1..10", Dimension("options.lambda_efm", 1.0, 10.0)),  # a number, not a whole one
        ("first.epochs=5..20", Dimension("first.epochs", 5.0, 20.0, whole=True)),
        ("options.rebalancing.views=2..8:log", Dimension("options.rebalancing.views", 2.0, 8.0, log=True, whole=True)),
        ("incremental.backbone_lr=1e-5..1e-3:log", Dimension("incremental.backbone_lr", 1e-5, 1e-3, log=True)),
        ("options.drift=ridge|efm", Dimension("options.drift", choices=("ridge", "efm"))),
        ("first.rotation=true|false", Dimension("first.rotation", choices=("true", "false"))),
        ("incremental.milestones=[]|[0.5,0.9]", Dimension("incremental.milestones", choices=("[]", "[0.5,0.9]"))),
        ("data.images_per_class=5..9", Dimension("data.images_per_class", 5.0, 9.0, whole=True)),
    ],
)
def test_any_field_can_be_searched(text: str, dimension: Dimension) -> None:
    assert search(text) == dimension


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("options.eta", r"--search takes field=0\.01\.\.1.*, not 'options.eta'"),
        ("options.eta=3", "--search takes field"),
        ("options.eta=a..b", r"--search options.eta=a..b: a range is two numbers"),
        ("options.eta=1..0.1", "from the smaller to the greater"),
        ("options.eta=0..inf", "from the smaller to the greater"),
        ("options.eta=0..1:log", "with :log begins above 0"),
        ("options.eta=1..2:exp", "only :log may stand, not :exp"),
        ("options.drift=efm|efm", "every choice must be there, and once"),
        ("options.drift=efm|", "every choice must be there, and once"),
        ("options.etta=0..1", "--search options.etta: There is no field in options called 'etta'; did you mean eta"),
        ("options.drift=efm|rigde", "--search options.drift: .*'rigde'; did you mean ridge"),
        ("first.epochs=0.5..2.5", "--search first.epochs: .*first.epochs must be a whole number"),
        ("incremental.lr=-1..1", "--search incremental.lr: .*incremental.lr must be at least 0"),
        ("workers=1..2", "no number of a run depends on it"),
        ("options.rebalancing={}|{views: 3}", "or it is a whole section"),
        *(
            (text, "what is measured would change with it")
            for text in ("stream.steps=2..5", "data.held_out=1..3", "seed=0..9", "classifier.method=efc|efc++")
        ),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        search(text)
    assert "\n" not in str(caught.value)


def test_a_field_is_searched_once() -> None:
    with pytest.raises(UserError, match=r"--search options\.eta is given twice"):
        distinct([search("options.eta=0..1"), search("classifier.options.eta=0..2")])


def test_a_trial_gets_values_of_the_range_that_read_back_as_such() -> None:
    numbers = {"options.eta": 0.0123456789, "first.epochs": 7, "options.drift": "efm", "incremental.lr": 1e-5}
    trial = optuna.trial.FixedTrial(numbers)
    texts = ("options.eta=0.01..1:log", "first.epochs=5..20", "options.drift=ridge|efm", "incremental.lr=1e-5..1")
    assert [search(text).suggest(trial) for text in texts] == [
        *("options.eta=0.0123457", "first.epochs=7", "options.drift=efm", "incremental.lr=1e-05"),
    ]
