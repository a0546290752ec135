"""The mutants of a module: its syntax tree with one node replaced.

A mutant that falls whenever another one does is not made: where a test sees a bound moved by one it sees the comparison
turned round, and where it misses each part of an ``and`` it sees an ``or``. Left alone are annotations, decorators, the
wording of messages, and calls that only write a log.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import CodeType

LONGEST = 100
"""Characters of an expression up to which it stands for its parts in the name of a mutant."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
PLAIN = ast.Name | ast.Attribute | ast.Call | ast.NamedExpr
"""Conditions that have no part to replace, and are negated instead."""

CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SAFEGUARDS = {"strict"}
"""Keyword arguments that stop a programming error, and change nothing else."""

LOGS = {"debug", "info", "warning", "print", "warn"}


@dataclass(frozen=True)
class Mutant:
    """One change of one function. Its name has no line number, so that edits elsewhere leave it as it is.

    Attributes:
        module: path of the module below the repository.
        function: qualified name of the function or class it is in; empty at the top of the module.
        change: the code before and after, with a number where the function has the same change again.
    """

    module: str
    function: str
    change: str
    _tree: ast.Module
    _slot: "_Slot"
    _new: ast.AST

    @property
    def name(self) -> str:
        """What the mutant is called on the screen."""
        return f"{self.module} {self.function or '(module)'}: {self.change}"

    @property
    def id(self) -> str:
        """A short name, to ask for this mutant alone."""
        return sha256(self.name.encode()).hexdigest()[:8]

    def compiled(self) -> CodeType:
        """Return the code of the mutated module. The tree stays mutated: call it once, in a process of its own."""
        self._slot.put(self._new)
        return compile(ast.fix_missing_locations(self._tree), self.module, "exec")


@dataclass(frozen=True)
class _Slot:
    """Where a node hangs in the tree."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(repository: Path, module: str) -> list[Mutant]:
    """Return all mutants of a module, given by its path below the repository."""
    tree = ast.parse((repository / module).read_text(encoding="utf-8"))
    result, seen = [], Counter[tuple[str, str]]()
    for slot, node, function in _nodes(tree, ""):
        for new in replacements(node):
            change = _change(slot, node, new)
            seen[function, change] += 1
            number = f" #{seen[function, change]}" if seen[function, change] > 1 else ""
            result.append(Mutant(module, function, change + number, tree, slot, new))
    return result


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of a node."""
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                yield ast.Compare(left, [*ops[:i], COMPARISONS[type(op)](), *ops[i + 1 :]], comparators)
        case ast.BoolOp(op, values):
            for i in range(len(values)):
                rest = [*values[:i], *values[i + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in ARITHMETIC:
            yield ast.AugAssign(target, ARITHMETIC[type(op)](), value)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield ast.Constant(value * 2 + 1)
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield operand
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), arguments, keywords)
        case ast.If(test, body, orelse) if isinstance(test, PLAIN):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test, body, orelse) if isinstance(test, PLAIN):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Raise() | ast.Expr(ast.Call()):
            yield ast.Pass()


def _nodes(parent: ast.AST, function: str) -> Iterator[tuple[_Slot, ast.AST, str]]:
    """Return the nodes below ``parent`` that may be replaced, with where they hang and the function they are in."""
    for field, value in ast.iter_fields(parent):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr) or _left_alone(node):
                continue
            yield _Slot(parent, field, index), node, function
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _nodes(node, f"{function}.{node.name}".lstrip("."))
            elif not isinstance(node, ast.Raise):
                yield from _nodes(node, function)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg=name):
            return name in SAFEGUARDS
        case ast.Expr(ast.Call(ast.Attribute(attr=name) | ast.Name(id=name))):
            return name in LOGS or name.startswith("log_")
    return False


def _change(slot: _Slot, node: ast.AST, new: ast.AST) -> str:
    """Return the code before and after; of a short expression around it, where that says more."""
    whole = slot.parent if isinstance(slot.parent, ast.expr | ast.keyword) else node
    before = _code(whole)
    if len(before) > LONGEST or "\n" in before:
        whole, before = node, _code(node)
    slot.put(new)
    after = _code(new if whole is node else whole)
    slot.put(node)
    return f"{before} -> {after}"


def _code(node: ast.AST) -> str:
    """Return a node as one line of code: the condition of an ``if``, an error without its wording."""
    match node:
        case ast.If(test):
            return f"if {ast.unparse(test)}"
        case ast.Raise(ast.Call(error)):
            return f"raise {ast.unparse(error)}(...)"
    return ast.unparse(ast.fix_missing_locations(node))
