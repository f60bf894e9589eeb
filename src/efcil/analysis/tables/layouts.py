"""Tables 2 to 10 as the paper prints them: blocks of rows, groups of columns.

A number's place is put together from what its block, row, group and column say of it, so that Table 5, with the steps
down and prototypes fixed and updated across, is written like Table 2, with methods down and steps across.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from efcil.bench.published import Place
from efcil.errors import UserError

Fixes = dict[str, Any]


@dataclass(frozen=True)
class Row:
    names: tuple[str, ...]
    fixes: Fixes
    rule: bool = False  # the paper draws a line above it


@dataclass(frozen=True)
class Block:
    heading: str
    rows: tuple[Row, ...]
    fixes: Fixes


@dataclass(frozen=True)
class Column:
    heading: str
    fixes: Fixes


@dataclass(frozen=True)
class Group:
    above: str  # a heading that several groups may share
    heading: str
    columns: tuple[Column, ...]
    fixes: Fixes


@dataclass(frozen=True)
class Layout:
    caption: str
    stubs: tuple[str, ...]  # headings of the columns of names
    blocks: tuple[Block, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()  # what a reader of the rows must know

    def place(self, block: Block, row: Row, group: Group, column: Column) -> Place:
        return Place(**{**block.fixes, **group.fixes, **row.fixes, **column.fixes})

    def places(self) -> list[Place]:
        """Every cell, row by row."""
        return [
            self.place(block, row, group, column)
            for block in self.blocks
            for row in block.rows
            for group in self.groups
            for column in group.columns
        ]

    def with_methods(self, names: Sequence[str]) -> Layout:
        """The table with rows of these methods below those of the paper, in every block."""
        if not names:
            return self
        if self.stubs != METHODS_DOWN:
            raise UserError("Only Tables 2, 3, 7 and 8 have methods for rows; --methods goes with these.")
        added = tuple(Row((name,), {"row": name}, rule=name == names[0]) for name in names)
        blocks = tuple(replace(block, rows=(*block.rows, *added)) for block in self.blocks)
        note = f"Rows that the paper does not have, in competition with the others of ours: {', '.join(names)}."
        return replace(self, blocks=blocks, notes=(*self.notes, note))


METHODS_DOWN = ("Method",)
DATA = {"cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet", "imagenet-subset": "ImageNet-Subset"}
LONG = {"warm": "Warm Start (WS)", "cold": "Cold Start (CS)"}
SHORT = {"warm": "WS", "cold": "CS"}


def methods(names: str) -> tuple[Row, ...]:
    """A row per method; EFC++ stands under a line of its own."""
    return tuple(Row((name,), {"row": name}, rule=name == "EFC++") for name in names.split())


def steps(*numbers: int) -> tuple[Column, ...]:
    return tuple(Column(f"{number} Step", {"steps": number}) for number in numbers)


def drift(name: str, data: str, joint: bool = False) -> Layout:
    """Tables 6, 9 and 10: the sources of means and covariances down, the accuracy and its gain across."""
    pairs = ("Fixed / Fixed", "EFM / Fixed", "EFM / Real", "Real / Fixed", "Real / Real")
    rows = tuple(Row(tuple(pair.split(" / ")), {"row": pair}) for pair in pairs)
    blocks = [Block(f"{number} Step", rows, {"data": data, "start": "cold", "steps": number}) for number in (10, 20)]
    if joint:
        ends = tuple(Row((f"{number} Step", ""), {"steps": number}) for number in (10, 20))
        blocks.append(Block("Joint Training", ends, {"data": data, "start": "cold", "row": "Joint Training"}))
    columns = (Column("Accuracy", {"metric": "A_step"}), Column("Delta", {"metric": "delta"}))
    notes = ["Delta of ours is the mean over the seeds that both runs have."]
    if joint:
        notes.append("The paper has one number of joint training for both numbers of steps.")
    caption = f"Impact of mean and covariance drift on EFC++ ({name} CS)"
    return Layout(caption, ("Mean", "Covariance"), tuple(blocks), (Group("", "", columns, {}),), tuple(notes))


ALL_METHODS = methods("EWC LwF PASS Fusion FeTrIL SSRE FeCAM ABD R-DFCIL EFC EFC++")
LARGE_SCALE = methods("FeTrIL FeCAM R-DFCIL EFC EFC++")
DOMAINS = methods("EWC LwF PASS FeTrIL SSRE FeCAM R-DFCIL EFC EFC++")
REGULARIZERS = tuple(
    Row((name,), {"row": name}, rule=name == "EFM") for name in ("E-FIM", "KD", "FD", "FD squared", "EFM")
)
UPDATES = (Column("✗", {"row": "✗"}), Column("✓", {"row": "✓"}))
STEPS = tuple(Row((str(number),), {"steps": number}) for number in (10, 20))
TRADE = (
    Column("F (↓)", {"metric": "F"}),
    Column("PL (↑)", {"metric": "PL"}),
    Column("A_step (↑)", {"metric": "A_step"}),
)

LAYOUTS = {
    2: Layout(
        "Small-scale Class-IL experiments",
        METHODS_DOWN,
        tuple(Block(name, ALL_METHODS, {"data": data}) for data, name in DATA.items()),
        tuple(
            Group(LONG[start], metric, steps(10, 20), {"start": start, "metric": metric})
            for start in LONG
            for metric in ("A_step", "A_inc")
        ),
    ),
    3: Layout(
        "Large-scale Class- and Domain-IL experiments, A_step",
        METHODS_DOWN,
        (Block("", LARGE_SCALE, {"start": "cold", "metric": "A_step"}),),
        (
            Group("", "ImageNet-1K (CS)", steps(10, 20), {"data": "imagenet-1k"}),
            Group("", "DN4IL (CS)", steps(6), {"data": "dn4il"}),
        ),
    ),
    4: Layout(
        "Ablation study on regularizers",
        ("Regularizer",),
        (Block("CIFAR-100", REGULARIZERS, {"data": "cifar100", "start": "cold"}),),
        tuple(Group("", f"CS - {number} Step", TRADE, {"steps": number}) for number in (10, 20)),
        (
            "FD is Eq. 5 as printed, the norm (options.regularizer=fd). FD squared, which the paper does not have, is "
            "the square of the norm with the weight η of the preset (options.lambda_efm=0).",
        ),
    ),
    5: Layout(
        "Ablation study on prototype update, A_step",
        ("Step",),
        tuple(Block(name, STEPS, {"data": data, "metric": "A_step"}) for data, name in DATA.items()),
        tuple(Group("", f"Update Proto ({SHORT[start]})", UPDATES, {"start": start}) for start in SHORT),
    ),
    6: drift("CIFAR-100", "cifar100", joint=True),
    7: Layout(
        "Large-scale Class-incremental experiments on ImageNet-1K",
        METHODS_DOWN,
        tuple(Block(SHORT[start], LARGE_SCALE, {"data": "imagenet-1k", "start": start}) for start in SHORT),
        tuple(Group("", metric, steps(10, 20), {"metric": metric}) for metric in ("A_step", "A_inc")),
    ),
    8: Layout(
        "Domain- and Class-incremental experiments on DN4IL",
        METHODS_DOWN,
        (Block("DN4IL", DOMAINS, {"data": "dn4il", "start": "cold"}),),
        tuple(Group("Cold Start", metric, steps(6), {"metric": metric}) for metric in ("A_step", "A_inc")),
    ),
    9: drift("ImageNet-Subset", "imagenet-subset"),
    10: drift("Tiny-ImageNet", "tiny-imagenet"),
}
