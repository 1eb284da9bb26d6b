"""A line of a function with its outcome held still: the same program without the graph break that the line is.

In memory alone, and only while it is asked for: no file changes.
"""

import ast
import builtins
import gc
import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import numpy as np

RECORD = "__trainkit_outcome__"
RESUMED = "torch_dynamo_resume_in"  # what Dynamo makes of the rest of a function after a graph break
PLAIN = (bool, int, float, str, type(None))
LONGEST = 1000  # elements of a list that is written into the code


class NoOutcomeError(ValueError):
    """A line has no outcome that can be held still; says why."""


@contextmanager
def held_still(file: str, line: int, call: Callable[[], object]) -> Iterator[None]:
    """Within it, what the statement in this line computed into plain Python (numbers, strings, None, the side that an
    `if` took) is the constant that it was in `call()`, which is called once before, with the code as it is.

    Raises NoOutcomeError where the statement gives tensors only, or another value each time that it runs in one call.
    """
    file = os.path.abspath(file)  # as code objects have it
    functions = _functions(file, line)
    code = functions[0].__code__
    outcomes: dict[int, list[Any]] = {}

    def record(place: int, value: Any, test: bool) -> Any:
        value = bool(value) if test else value
        outcomes.setdefault(place, []).append(value)
        return value

    setattr(builtins, RECORD, record)
    try:
        with _running(functions, _changed(file, line, code, _recorded)):
            call()
    finally:
        delattr(builtins, RECORD)
    constants = {place: node for place, values in outcomes.items() if (node := _constant(values)) is not None}
    if not constants:
        raise NoOutcomeError("its result is a tensor, or another one each time it runs")
    with _running(functions, _changed(file, line, code, lambda place, node, test: constants.get(place))):
        yield


def _functions(file: str, line: int) -> list[FunctionType]:
    """The function that holds a line, the innermost one; all objects that share its code."""
    gc.unfreeze()  # gc tells nothing of what cli.importing has put out of its sight
    holding = [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType  # isinstance would ask proxies and lazy objects, which answer with an error
        and thing.__code__.co_filename == file
        and thing.__code__.co_firstlineno <= line <= max(at or 0 for _, _, at in thing.__code__.co_lines())
        and not thing.__code__.co_name.startswith(RESUMED)
    ]
    if not holding:
        raise NoOutcomeError("its function was not found")
    code = max((function.__code__ for function in holding), key=lambda code: code.co_firstlineno)
    return [function for function in holding if function.__code__ is code]


@contextmanager
def _running(functions: list[FunctionType], code: CodeType) -> Iterator[None]:
    before = functions[0].__code__
    for function in functions:
        function.__code__ = code
    try:
        yield
    finally:
        for function in functions:
            function.__code__ = before


Change = Callable[[int, ast.expr, bool], ast.expr | None]  # (its number in the statement, it, is it a test?)


def _changed(file: str, line: int, code: CodeType, change: Change) -> CodeType:
    """The function's code with the expressions of the statement in that line changed, from the outermost inwards."""
    tree = ast.parse("".join(linecache.getlines(file)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                break
    else:
        raise NoOutcomeError("its function's source was not found")
    statements = [s for s in ast.walk(node) if isinstance(s, ast.stmt) and s is not node and s.lineno <= line]
    statement = max((s for s in statements if line <= (s.end_lineno or 0)), key=lambda s: s.lineno)
    _Changer(change).change(statement)
    node.decorator_list = []
    # The function's free variables become those of a function around it, so that its cells fit.
    around = ast.parse(f"def around({', '.join(code.co_freevars)}): pass")
    assert isinstance(around.body[0], ast.FunctionDef)
    owner = _class_of(tree, node)
    around.body[0].body = [node] if owner is None else [_class(owner.name, node)]
    inner = _inner(compile(ast.fix_missing_locations(around), file, "exec"), "around")
    made = _inner(inner if owner is None else _inner(inner, owner.name), code.co_name)
    if made.co_freevars != code.co_freevars:
        raise NoOutcomeError("it is in a closure that would lose a variable")
    return made


def _class_of(tree: ast.AST, function: ast.stmt) -> ast.ClassDef | None:
    """The innermost class around a function."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and function in ast.walk(node)]
    return max(classes, key=lambda node: node.lineno, default=None)


def _class(name: str, function: ast.stmt) -> ast.ClassDef:
    """A class with this function alone: private names (`self.__n`) hold the name of their class."""
    made = ast.parse(f"class {name}: pass").body[0]
    assert isinstance(made, ast.ClassDef)
    made.body = [function]
    return made


def _inner(code: CodeType, name: str) -> CodeType:
    return next(inner for inner in code.co_consts if isinstance(inner, CodeType) and inner.co_name == name)


class _Changer(ast.NodeTransformer):
    """Numbers the expressions of one statement, and puts another in the place of those that `change` gives one for."""

    def __init__(self, change: Change):
        self._change, self._number = change, 0

    def change(self, statement: ast.stmt) -> None:
        """Of a compound statement its head alone."""
        for name, value in ast.iter_fields(statement):
            if name in ("test", "value", "iter", "msg", "exc") and isinstance(value, ast.expr):
                setattr(statement, name, self._visited(value, test=True) if name == "test" else self.visit(value))

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.IfExp):
            node.test = self._visited(node.test, test=True)
            node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
            return node
        loads = not isinstance(getattr(node, "ctx", ast.Load()), ast.Store | ast.Del)
        computes = isinstance(node, ast.Call | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.BinOp | ast.Subscript)
        if computes and loads:
            return self._visited(node, test=False)
        return super().generic_visit(node)

    def _visited(self, node: Any, test: bool) -> ast.expr:
        number, self._number = self._number, self._number + 1
        inner = super().generic_visit(node)
        assert isinstance(inner, ast.expr)
        return self._change(number, inner, test) or inner


def _recorded(place: int, node: ast.expr, test: bool) -> ast.expr:
    arguments = [ast.Constant(place), node, ast.Constant(test)]
    return ast.Call(ast.Name(RECORD, ast.Load()), arguments, [])


def _constant(values: list[Any]) -> ast.expr | None:
    """The code of what was the same plain value each time; None where it was not."""
    first = values[0]
    if isinstance(first, list | tuple) and type(first) in (list, tuple) and len(first) <= LONGEST:
        elements = [_constant([element]) for element in first]
        if any(element is None for element in elements) or any(value != first for value in values[1:]):
            return None
        kind = ast.List if isinstance(first, list) else ast.Tuple
        return kind([element for element in elements if element is not None], ast.Load())
    # NumPy's numbers know more than Python's, and are no constants of its code.
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    plain = type(values[0]) in PLAIN and all(type(v) is type(values[0]) and v == values[0] for v in values)
    return ast.Constant(values[0]) if plain else None
