"""Settings: checked names, types and ranges, the same after a round trip, and resolved in the documented order."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from efcil.backbones.pretrained import Architecture
from efcil.bench.scenarios import flat, parse_change, preset_names, read_preset, resolve
from efcil.classifier import IncrementalClassifier
from efcil.config import (
    ClassifierConfig,
    DataConfig,
    FirstTask,
    PreprocessingConfig,
    RunConfig,
    StreamConfig,
    Training,
    deciding,
    from_dict,
    merge,
    moves_no_number,
    to_dict,
)
from efcil.errors import UserError
from efcil.methods import METHODS, build_method
from efcil.methods.finetune import FineTune

CHANGED = {
    "data": {"name": "digits", "images_per_class": 3},
    "stream": {"kind": "warm", "steps": 2, "first_classes": 4, "shuffle": False},
    "classifier": {
        "width": 8,
        "image_size": 32,
        "options": {"rebalancing": {"epochs": 3}},
        "first": {"milestones": [0.2, 0.7], "rotation": False, "backbone_lr": 1e-5},
        "incremental": {"optimizer": "sgd", "lr": 0.25},
    },
}


# From and to dictionaries


@pytest.mark.parametrize("values", [{}, CHANGED])
def test_a_round_trip_changes_nothing(values: dict[str, Any]) -> None:
    config = from_dict(RunConfig, values)
    plain = to_dict(config)
    assert from_dict(RunConfig, plain) == config
    assert from_dict(RunConfig, json.loads(json.dumps(plain))) == config
    assert from_dict(RunConfig, yaml.safe_load(yaml.safe_dump(plain))) == config


def test_values_arrive_where_they_belong() -> None:
    config = from_dict(RunConfig, CHANGED)
    assert config.data.images_per_class == 3 and config.stream.kind == "warm"
    assert config.classifier.first.milestones == (0.2, 0.7) and config.classifier.first.lr == 1e-3
    assert config.classifier.incremental.lr == 0.25 and config.classifier.incremental.epochs == 100


def test_configs_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClassifierConfig().width = 3  # type: ignore[misc]


def test_defaults_are_the_papers() -> None:
    config = ClassifierConfig()
    assert (config.method, config.backbone, config.width, config.seed) == ("efc++", "resnet18", 64, 0)
    assert (config.first.epochs, config.first.lr, config.first.milestones) == (100, 1e-3, (0.45, 0.9))
    assert config.first.rotation and config.first.optimizer == config.incremental.optimizer == "adam"
    assert (config.incremental.epochs, config.incremental.lr, config.incremental.batch_size) == (100, 1e-4, 64)
    options = METHODS["efc++"].Options()
    assert (options.lambda_efm, options.eta, options.sigma) == (10.0, 0.1, 0.2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("given", "kept"), [("1e-4", 1e-4), (1, 1.0), (0.5, 0.5), ("2", 2.0)])
def test_numbers_may_be_written_in_any_usual_way(given: Any, kept: float) -> None:
    lr = from_dict(Training, {"lr": given}).lr
    assert lr == kept and type(lr) is float


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"classifier": {"width": "8"}}, "classifier.width must be a whole number, not '8'"),
        ({"classifier": {"width": 8.0}}, "classifier.width must be a whole number"),
        ({"classifier": {"width": True}}, "classifier.width must be a whole number, not True"),
        ({"classifier": {"width": None}}, "classifier.width must be a whole number, not None"),
        ({"classifier": {"first": {"lr": "fast"}}}, "classifier.first.lr must be a number, not 'fast'"),
        ({"classifier": {"first": {"lr": True}}}, "classifier.first.lr must be a number"),
        ({"classifier": {"first": {"rotation": 1}}}, "classifier.first.rotation must be true or false, not 1"),
        ({"classifier": {"method": 3}}, "classifier.method must be a word"),
        ({"classifier": {"first": {"milestones": 0.5}}}, r"milestones must be a list such as \[0.45, 0.9\]"),
        ({"classifier": {"first": {"milestones": ["x"]}}}, "milestones must be a number"),
        ({"classifier": 4}, "classifier is a section"),
        ({"stream": {"kind": "hot"}}, "no value for stream.kind called 'hot'.*cold"),
        ({"stream": {"kind": ["cold"]}}, "no value for stream.kind"),
        (
            {"classifier": {"batch_size": 8}},
            "no field classifier.batch_size; did you mean first.batch_size or incremental",
        ),
        ({"streams": {}}, "no field called 'streams'; did you mean stream"),
        ({"classifier": {"first": {"epoch": 1}}}, "no field in classifier.first called 'epoch'; did you mean epochs"),
        ({"classifier": {"options": 5}}, "classifier.options is a section"),
    ],
)
def test_wrong_names_and_types_are_refused_with_their_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(RunConfig, values)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("classifier.first", {"epochs": -1}),
        ("classifier.first", {"batch_size": 0}),
        ("classifier.first", {"lr": -1e-9}),
        ("classifier.first", {"lr": float("nan")}),
        ("classifier.first", {"backbone_lr": -1.0}),
        ("classifier.first", {"gamma": -0.1}),
        ("classifier.incremental", {"momentum": -0.1}),
        ("classifier.incremental", {"weight_decay": -0.1}),
        ("classifier.incremental", {"milestones": [0.5, 1.0]}),
        ("classifier.incremental", {"milestones": [0.0]}),
        ("classifier", {"width": 0}),
        ("classifier", {"stem_stride": 0}),
        ("classifier", {"image_size": 3}),
        ("classifier", {"seed": -1}),
        ("classifier", {"workers": -1}),
        ("classifier", {"cache_mb": -1}),
        ("classifier", {"checkpoint_seconds": -1.0}),
        ("classifier.preprocessing", {"crop": 0.0}),
        ("classifier.preprocessing", {"crop": 1.1}),
        ("data", {"images_per_class": 0}),
        ("data", {"held_out": -1}),
        ("stream", {"steps": 0}),
        ("stream", {"first_classes": -1}),
        ("stream", {"skip_classes": -1}),
    ],
)
def test_values_out_of_range_are_refused_by_name(section: str, values: dict[str, Any]) -> None:
    nested: dict[str, Any] = values
    for name in reversed(section.split(".")):
        nested = {name: nested}
    with pytest.raises(UserError, match=rf"^{section}\.{next(iter(values))} "):
        from_dict(RunConfig, nested)


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(UserError, match=r"^architecture\.name is missing\.$"):
        from_dict(Architecture, {"width": 3}, "architecture.")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, "mean and std of the preprocessing go together"),
        ({"std": [0.5, 0.5, 0.5]}, "mean and std of the preprocessing go together"),
        ({"mean": [0.5, 0.5], "std": [1.0, 1.0, 1.0]}, "three numbers each"),
        ({"mean": [0.5, 0.5, 0.5], "std": [1.0]}, "three numbers each"),
        ({"mean": [0.5, float("nan"), 0.5], "std": [0.2, 0.2, 0.2]}, "mean must be numbers"),
        ({"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.0, 0.2]}, "std numbers above 0"),
        ({"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, float("inf")]}, "std numbers above 0"),
    ],
)
def test_mean_and_spread_of_the_colours_must_make_sense(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_dict(PreprocessingConfig, values)


def test_the_least_that_is_allowed_is_allowed() -> None:
    assert DataConfig(images_per_class=1).images_per_class == StreamConfig(steps=1).steps == 1


def test_a_small_spread_and_the_whole_crop_are_fine() -> None:
    given = {"mean": [0.0, -0.1, 0.5], "std": [0.01, 1.0, 2.0], "crop": 1.0}
    assert to_dict(from_dict(PreprocessingConfig, given)) == {**given, "interpolation": None}


SECTIONS_OF_A_MISTAKE = {
    "first.epochs": (-1, "at least 0"),
    "incremental.epochs": (-1, "at least 0"),
    "incremental.milestones": ([2.0], "between 0 and 1"),
    "options.eta": (-1.0, "at least 0"),
    "options.rebalancing.lr": (-1.0, "at least 0"),
    "options.lambda_regularizer": (1.0, "weighs efim, kd or fd"),
    "first.lr": (10**400, "a number"),
}


@pytest.mark.parametrize("field", SECTIONS_OF_A_MISTAKE)
def test_a_value_out_of_range_is_named_with_its_section_however_it_is_given(field: str, tmp_path: Path) -> None:
    value, reason = SECTIONS_OF_A_MISTAKE[field]
    nested: Any = value
    for name in reversed(field.split(".")):
        nested = {name: nested}
    preset = preset_file(tmp_path, json.dumps({"classifier": nested}))
    for use in (
        lambda: IncrementalClassifier("efc++", **nested),
        lambda: resolve(preset, "efc++", 0),
        lambda: resolve("digits-cold5", "efc++", 0, [f"{field}={json.dumps(value)}"]),
    ):
        with pytest.raises(UserError, match=rf"^(classifier\.)?{field} .*{reason}"):
            use()


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinite_learning_rate_is_refused(value: float) -> None:
    with pytest.raises(UserError, match="lr"):
        from_dict(Training, {"lr": value})


def test_milestones_scale_with_the_epochs() -> None:
    for epochs in (20, 100, 1000):
        first = FirstTask(epochs=epochs)
        factors = [first.lr_factor(epoch) for epoch in range(epochs)]
        drops = [epoch for epoch in range(1, epochs) if factors[epoch] < factors[epoch - 1]]
        assert drops == [epochs * 45 // 100, epochs * 9 // 10]
        assert factors[0] == 1.0 and factors[-1] == pytest.approx(0.01)
    assert Training(epochs=10).lr_factor(9) == 1.0  # later tasks have no milestones


def test_schedules_go_step_by_step() -> None:
    """Linear and cosine from 1 to 0; one-cycle rises from a 25th to 1 in a quarter of the steps, then falls to 0."""
    steps = [(epoch, part / 10) for epoch in range(8) for part in range(10)]
    done = [(epoch + part) / 8 for epoch, part in steps]

    def factors(schedule: str) -> list[float]:
        training = from_dict(Training, {"epochs": 8, "schedule": schedule, "milestones": [0.5]})
        return [training.lr_factor(epoch, part) for epoch, part in steps]

    assert factors("milestones") == [1.0] * 40 + [0.1] * 40  # the part of an epoch does not count
    assert factors("linear") == pytest.approx([1 - d for d in done])
    assert factors("cosine") == pytest.approx([0.5 + 0.5 * math.cos(math.pi * d) for d in done])
    rising, falling = factors("one-cycle")[:20], factors("one-cycle")[20:]
    assert rising == pytest.approx([0.04 + 0.96 * d / 0.25 for d in done[:20]])
    assert falling == pytest.approx([0.5 + 0.5 * math.cos(math.pi * (d - 0.25) / 0.75) for d in done[20:]])


def test_an_image_is_shown_once_or_in_as_many_rotations_as_set() -> None:
    assert [FirstTask(rotations_shown=r).turns for r in (1, 2, 4)] == [1, 2, 4]
    assert FirstTask(rotation=False, rotations_shown=2).turns == Training().turns == 0


@pytest.mark.parametrize(
    "setting", [{"rotations_shown": 0}, {"rotations_shown": 5}, {"label_smoothing": 1.1}, {"label_smoothing": -0.1}]
)
def test_rotations_and_smoothing_have_bounds(setting: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"(must lie between).*not"):
        from_dict(FirstTask, setting)


def test_merge_goes_section_by_section_and_leaves_its_arguments_alone() -> None:
    base, over = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "c": {"z": 1}}
    assert merge(base, over) == {"a": {"x": 1, "y": 5}, "b": 3, "c": {"z": 1}}
    assert base == {"a": {"x": 1, "y": 2}, "b": 3} and over == {"a": {"y": 5}, "c": {"z": 1}}


def test_settings_that_move_no_number_are_left_out_at_every_depth() -> None:
    @dataclasses.dataclass(frozen=True)
    class Inner:
        workers: int = moves_no_number(4)
        views: int = 5

    @dataclasses.dataclass(frozen=True)
    class Outer:
        inner: Inner = Inner(workers=7)
        steps: tuple[float, ...] = (0.5,)

    assert deciding(Outer()) == {"inner": {"views": 5}, "steps": [0.5]}
    names = flat(deciding(RunConfig()))
    idle = {f"classifier.{name}" for name in ("device", "workers", "cache_mb", "checkpoint_seconds")}
    assert not idle & names.keys() and {"classifier.seed", "classifier.incremental.batch_size"} <= names.keys()


def test_flat_names_every_leaf() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": [2]}, "e": None}) == {"a.b.c": 1, "a.d": [2], "e": None}


# Resolving


def preset_file(folder: Path, text: str) -> str:
    path = folder / "own.yaml"
    path.write_text(text)
    return str(path)


RECIPE = {"incremental": {"lr": 3.0, "epochs": 3, "batch_size": 3, "gamma": 3.0}}


def test_the_users_words_win_over_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default, the method's recipe, the user's file, its section for the method, then changes."""
    monkeypatch.setattr(FineTune, "recipe", RECIPE)
    preset = preset_file(
        tmp_path,
        """
classifier: {incremental: {lr: 2.0, epochs: 2, batch_size: 2}}
methods: {finetune: {incremental: {epochs: 4, batch_size: 4}}}
""",
    )
    later = resolve(preset, "finetune", 0, ["incremental.batch_size=5"]).classifier.incremental
    assert (later.weight_decay, later.gamma, later.lr, later.epochs, later.batch_size) == (2e-4, 3.0, 2.0, 4, 5)
    other = resolve(preset, "freeze", 0).classifier.incremental
    assert (other.gamma, other.lr, other.epochs, other.batch_size) == (0.1, 2.0, 2, 2)
    python = IncrementalClassifier("finetune", incremental={"lr": 2.0}).config.incremental
    assert (python.lr, python.epochs) == (2.0, 3)


def test_a_packaged_preset_yields_to_a_recipe_and_the_users_part_of_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FineTune, "recipe", RECIPE)
    packaged = resolve("cifar100-warm10-cpu", "finetune", 0).classifier.incremental  # it is itself like another
    assert (packaged.lr, packaged.epochs, packaged.batch_size) == (3.0, 3, 3)
    own = preset_file(tmp_path, "like: cifar100-warm10-cpu\nclassifier: {incremental: {epochs: 5}}")
    later = resolve(own, "finetune", 0).classifier.incremental
    assert (later.lr, later.epochs, later.batch_size) == (3.0, 5, 3)
    ssre = resolve(preset_file(tmp_path, "classifier: {incremental: {epochs: 5}}"), "ssre", 0).classifier.incremental
    assert ssre.epochs == 5 and ssre.weight_decay == 5e-4  # what the user does not say is the recipe's


def test_a_preset_like_another_changes_only_what_it_says(tmp_path: Path) -> None:
    text = "like: cifar100-cold10-cpu\nclassifier: {first: {epochs: 3}}\nmethods: {ssre: {incremental: {epochs: 2}}}"
    for method in ("ssre", "efc++"):
        ours = flat(to_dict(resolve(preset_file(tmp_path, text), method, 0)))
        theirs = flat(to_dict(resolve("cifar100-cold10-cpu", method, 0)))
        changed = {name: ours[name] for name in ours if ours[name] != theirs[name]}
        later = {"classifier.incremental.epochs": 2} if method == "ssre" else {}
        assert changed == {"classifier.first.epochs": 3, **later}


def test_later_changes_win_over_earlier_ones() -> None:
    assert resolve("digits-cold5", "efc++", 0, ["width=4", "width=6"]).classifier.width == 6


def test_method_and_seed_are_what_was_asked_for(tmp_path: Path) -> None:
    config = resolve(preset_file(tmp_path, "classifier: {seed: 9, method: joint}"), "freeze", 4).classifier
    assert (config.method, config.seed) == ("freeze", 4)


def test_options_are_resolved_completely() -> None:
    options = resolve(
        "digits-cold5", "efc++", 0, ["options.eta=0.5", "options.rebalancing.epochs=2"]
    ).classifier.options
    assert options["eta"] == 0.5 and options["lambda_efm"] == 10.0
    assert options["rebalancing"]["epochs"] == 2 and options["rebalancing"]["momentum"] == 0.9


@pytest.mark.parametrize(
    ("change", "nested"),
    [
        ("width=4", {"classifier": {"width": 4}}),
        ("incremental.lr=1e-3", {"classifier": {"incremental": {"lr": "1e-3"}}}),
        ("stream.steps=3", {"stream": {"steps": 3}}),
        ("data.name=digits", {"data": {"name": "digits"}}),
        ("classifier.width=4", {"classifier": {"width": 4}}),
        ("first.milestones=[0.2, 0.4]", {"classifier": {"first": {"milestones": [0.2, 0.4]}}}),
        ("image_size=", {"classifier": {"image_size": None}}),
        ("options.note=a=b", {"classifier": {"options": {"note": "a=b"}}}),
    ],
)
def test_changes_are_read_as_yaml(change: str, nested: dict[str, Any]) -> None:
    assert parse_change(change) == nested


@pytest.mark.parametrize("change", ["width", "=4", "", "width=[", "width={a: }b"])
def test_changes_that_cannot_be_read_are_refused(change: str) -> None:
    with pytest.raises(UserError, match="--set"):
        parse_change(change)


@pytest.mark.parametrize(
    "change", ["options=3", "classifier=3", "first=3", "stream=3", "data=3", "options.rebalancing=3", "width.x=3"]
)
def test_a_section_cannot_be_replaced_by_a_value(change: str) -> None:
    with pytest.raises(UserError):
        resolve("digits-cold5", "efc++", 0, [change])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_resolves_for_every_method(preset: str, method: str) -> None:
    config = resolve(preset, method, seed=1)
    assert (config.classifier.method, config.classifier.seed) == (method, 1)
    assert from_dict(RunConfig, yaml.safe_load(yaml.safe_dump(to_dict(config)))) == config
    assert IncrementalClassifier.from_config(config.classifier).config == config.classifier
    assert read_preset(preset)["description"]


PUBLISHED = {  # presets whose name begins so: the options that the authors use there
    "tiny-imagenet": {
        "dpcr": {"gamma": 2000, "lambda_lwf": 10},
        "apr": {"pseudo_batch": 64, "pseudo_iterations": 6, "attack_batch": 64, "attack_iterations": 6, "gamma": 40},
        "acil": {"expansion": 8192, "gamma": 0.1},
        "ds-al": {"expansion": 8192, "compensation": 0.6},
    },
    "imagenet-subset": {
        "dpcr": {"gamma": 2000, "lambda_lwf": 5},
        "apr": {"pseudo_batch": 16, "pseudo_iterations": 2, "attack_batch": 16, "attack_iterations": 3, "gamma": 40},
        "acil": {"expansion": 16384, "gamma": 0.1},
        "ds-al": {"expansion": 16384, "compensation": 0.6},
    },
    "imagenet1k": {
        "dpcr": {"gamma": 200, "lambda_lwf": 10},
        "apr": {"pseudo_batch": 64, "gamma": 24},
        "acil": {"expansion": 16384, "gamma": 0.1},
        "ds-al": {"expansion": 16384, "compensation": 1.5},
    },
}


@pytest.mark.parametrize("preset", [name for name in preset_names() if name.startswith(tuple(PUBLISHED))])
def test_presets_have_the_options_that_authors_published_for_their_images(preset: str) -> None:
    (methods,) = (published for start, published in PUBLISHED.items() if preset.startswith(start))
    for method, options in methods.items():
        resolved = resolve(preset, method, 0).classifier.options
        assert {name: resolved[name] for name in options} == options, method


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classifier: {width: [", "own.yaml is not valid YAML, line 1: "),
        (
            "\nclassifier: [a\ndata: b",
            "line 3: expected .* .while parsing a flow sequence that begins in line 2.",
        ),
        ("classifier: \x01", "own.yaml is not valid YAML: a character that no text has."),
        ("- a\n- b", "must be a list of sections: data, stream, classifier"),
        ("", "must be a list of sections"),
        ("3", "must be a list of sections"),
        (
            "like: cifar100-cold10-gpu",
            "no preset called .*did you mean .*cifar100-cold10-cpu",
        ),
        ("like: [digits-cold5]", "no preset called .*digits-cold5"),
        ("first: {epochs: 1}", r"own.yaml, first belongs under classifier: classifier: {first: …}\."),
        ("held_out: 5", r"held_out belongs under data: data: {held_out: …}\."),
        ("clasifier: {}", "no section in preset .*called 'clasifier'; did you mean classifier"),
        ("classifier: {widht: 3}", "called 'widht'; did you mean width"),
        ("classifier: 3", "classifier"),
        ("methods: [efc]", "methods"),
        ("methods: {efc++: 3}", r"methods|efc\+\+"),
        ("stream: [1]", "stream"),
        ("!!python/object/apply:os.system [exit]", "not valid YAML"),
    ],
)
def test_a_wrong_preset_file_gets_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        resolve(preset_file(tmp_path, text), "efc++", 0)
    assert "\n" not in str(caught.value)


def test_a_preset_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere.yaml cannot be read: No such file"):
        read_preset(str(tmp_path / "nowhere.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(UserError, match=r"folder.yaml cannot be read"):
        read_preset(str(tmp_path / "folder.yaml"))
    (tmp_path / "noise.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(UserError, match=r"noise.yaml"):
        read_preset(str(tmp_path / "noise.yaml"))


def test_empty_sections_are_defaults(tmp_path: Path) -> None:
    assert resolve(preset_file(tmp_path, "classifier:\nstream:\nmethods:\n"), "finetune", 0).stream.steps == 10


@pytest.mark.parametrize(
    ("name", "option"),
    [("ewc", "alpha"), ("mas", "alpha"), ("rwalk", "alpha"), ("fusion", "gamma"), ("r-dfcil", "refinement")],
)
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between_zero_and_one(name: str, option: str, share: float) -> None:
    with pytest.raises(UserError, match=f"{option} must lie between 0 and 1"):
        build_method(name, {option: share})
