"""Small wrong changes to a source file, one at a time: what a good test suite must notice.

Each mutant is one change of one node of the syntax tree: a comparison or an operator that became another one, a number
or a truth value that became another one, a condition that was turned round, a statement that is gone, a function that
returns nothing, two arguments that changed places, a keyword argument that is left to its default.

Left alone are words (docstrings, messages, names of terms), annotations, decorators, assertions (which tell mypy what
the types are), descriptive class attributes, what only guards or only says where a tensor lives, and the order of
arguments that may stand in any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DESCRIPTIVE = {"name", "year", "idea", "stores"}  # class attributes for the reader alone
SILENT_KEYWORDS = {"strict", "device", "memory_format", "stable"}  # no result on one CPU depends on them
SYMMETRIC = {"min", "max", "minimum", "maximum", "l1_loss", "mse_loss"}  # whose first two arguments may change places

OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OTHER_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str  # relative to the project
    number: int  # its place among all mutants of the file
    scope: str  # the function or the class that is changed, empty for the module itself
    in_function: bool  # otherwise the changed line runs when the module is imported
    line: int
    before: str  # the statement as it is
    after: str  # the statement as the mutant has it

    @property
    def key(self) -> str:
        """What names the mutant for as long as the statement stays as it is, wherever it moves."""
        return f"{self.scope or 'module'}: {self.after}"


@dataclass(frozen=True)
class Change:
    """A node of which one field gets another value."""

    node: ast.AST
    field: str
    value: Any


@dataclass(frozen=True)
class Site:
    """A change and where it is."""

    change: Change
    statement: ast.stmt
    scope: tuple[str, ...]
    in_function: bool


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of the file."""
    found: list[Mutant] = []
    repeated: dict[tuple[tuple[str, ...], str], int] = {}
    for number, site in enumerate(sites(ast.parse(source))):
        before = described(site.statement)
        kept = getattr(site.change.node, site.change.field)
        setattr(site.change.node, site.change.field, site.change.value)
        deleted = (
            site.change.node is not site.statement
            and isinstance(site.change.value, list)
            and any(isinstance(part, ast.Pass) for part in site.change.value)
        )
        after = f"(gone) {before}" if deleted else described(site.statement)
        setattr(site.change.node, site.change.field, kept)
        times = repeated[site.scope, after] = repeated.get((site.scope, after), 0) + 1
        after = f"{after}  ({times})" if times > 1 else after
        found.append(Mutant(path, number, ".".join(site.scope), site.in_function, site.statement.lineno, before, after))
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The syntax tree of the file with this one of its mutants in place."""
    tree = ast.parse(source)
    change = next(site for place, site in enumerate(sites(tree)) if place == number).change
    setattr(change.node, change.field, change.value)
    return ast.fix_missing_locations(tree)


def described(statement: ast.stmt) -> str:
    """A statement in one line, without what is inside its block."""
    if isinstance(statement, ast.FunctionDef):
        return f"def {statement.name}({ast.unparse(statement.args)})"
    text = ast.unparse(statement)
    compound = isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.ClassDef)
    return text.split("\n")[0] if compound else " ".join(text.split())


# Where something can be changed


def sites(tree: ast.Module) -> Iterator[Site]:
    yield from in_block(tree, "body", (), False)


def in_block(owner: ast.AST, field: str, scope: tuple[str, ...], in_function: bool) -> Iterator[Site]:
    """The sites of a list of statements."""
    block: list[ast.stmt] = getattr(owner, field)
    assigned: set[str] = set()
    for place, statement in enumerate(block):
        if is_left_alone(statement):
            continue
        if in_function and can_go(statement, assigned):
            without = [*block[:place], ast.Pass(), *block[place + 1 :]]
            yield Site(Change(owner, field, without), statement, scope, in_function)
        assigned |= names_assigned(statement)
        yield from in_statement(statement, scope, in_function)


def in_statement(statement: ast.stmt, scope: tuple[str, ...], in_function: bool) -> Iterator[Site]:
    if isinstance(statement, ast.FunctionDef):
        for default in [*statement.args.defaults, *statement.args.kw_defaults]:
            if default is not None:
                yield from in_expression(default, statement, (*scope, statement.name), in_function)
        yield from in_block(statement, "body", (*scope, statement.name), True)
        return
    if isinstance(statement, ast.ClassDef):
        yield from in_block(statement, "body", (*scope, statement.name), in_function)
        return
    if isinstance(statement, ast.Raise):  # whether it is raised matters, its words do not
        return
    if isinstance(statement, ast.Return) and statement.value is not None:
        yield Site(Change(statement, "value", ast.Constant(None)), statement, scope, in_function)
    if isinstance(statement, ast.If | ast.While) and not turns_by_itself(statement.test):
        turned = ast.UnaryOp(ast.Not(), statement.test)
        yield Site(Change(statement, "test", turned), statement, scope, in_function)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OTHER_OPERATORS:
        other = OTHER_OPERATORS[type(statement.op)]()
        yield Site(Change(statement, "op", other), statement, scope, in_function)
    for child in expressions(statement):
        yield from in_expression(child, statement, scope, in_function)
    for field in ("body", "orelse", "finalbody"):
        if getattr(statement, field, None):
            yield from in_block(statement, field, scope, in_function)
    for handler in getattr(statement, "handlers", []):
        yield from in_block(handler, "body", scope, in_function)


def expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement itself, annotations left out."""
    for field, value in ast.iter_fields(statement):
        if field in ("annotation", "body", "orelse", "finalbody", "handlers"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.expr):
                yield part
            elif isinstance(part, ast.withitem):
                yield part.context_expr


def in_expression(node: ast.expr, statement: ast.stmt, scope: tuple[str, ...], in_function: bool) -> Iterator[Site]:
    for change in changes(node):
        yield Site(change, statement, scope, in_function)
    if isinstance(node, ast.JoinedStr):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.keyword):
            if child.arg in SILENT_KEYWORDS:
                continue
            child = child.value
        if isinstance(child, ast.comprehension):
            for test in child.ifs:
                yield from in_expression(test, statement, scope, in_function)
            child = child.iter
        if isinstance(child, ast.expr):
            yield from in_expression(child, statement, scope, in_function)


def changes(node: ast.expr) -> Iterator[Change]:
    """What can be changed of this node itself."""
    match node:
        case ast.Compare(ops=[operator]):
            for other in OTHER_COMPARISONS[type(operator)]:
                yield Change(node, "ops", [other()])
        case ast.Compare(ops=several):
            for place, operator in enumerate(several):
                other = OTHER_COMPARISONS[type(operator)][0]()
                yield Change(node, "ops", [*several[:place], other, *several[place + 1 :]])
        case ast.BinOp(op=operator) if type(operator) in OTHER_OPERATORS:
            yield Change(node, "op", OTHER_OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield Change(node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub()):
            yield Change(node, "op", ast.UAdd())
        case ast.IfExp(test=test) if not turns_by_itself(test):
            yield Change(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as truth):
            yield Change(node, "value", not truth)
        case ast.Constant(value=int() as number):
            yield Change(node, "value", number + 1)
        case ast.Constant(value=float() as number):
            yield Change(node, "value", number * 2 or 1.0)
        case ast.Call(args=arguments, keywords=keywords):
            plain = not any(isinstance(argument, ast.Starred) for argument in arguments[:2])
            plain = plain and called(node) not in SYMMETRIC
            if len(arguments) >= 2 and plain and ast.dump(arguments[0]) != ast.dump(arguments[1]):
                yield Change(node, "args", [arguments[1], arguments[0], *arguments[2:]])
            for keyword in keywords:
                if keyword.arg is not None and keyword.arg not in SILENT_KEYWORDS:
                    yield Change(node, "keywords", [other for other in keywords if other is not keyword])


def called(node: ast.expr) -> str:
    """The last name of the function that is called, if this is a call of a named one."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return ""


def turns_by_itself(test: ast.expr) -> bool:
    """Whether a change of its comparison is already the condition turned round."""
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and len(OTHER_COMPARISONS[type(test.ops[0])]) == 1


def is_left_alone(statement: ast.stmt) -> bool:
    """Imports, assertions, docstrings, what only mypy reads, and what only describes."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=call):  # a module is moved to its device
            return called(call) == "to"
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in DESCRIPTIVE
    return False


def can_go(statement: ast.stmt, assigned: set[str]) -> bool:
    """Whether the function still runs without it: then only what it does can be missed."""
    match statement:
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Assign(targets=targets):
            names = names_assigned(statement)
            return any(not isinstance(target, ast.Name | ast.Tuple) for target in targets) or (
                bool(names) and names <= assigned
            )
    return False


def names_assigned(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
