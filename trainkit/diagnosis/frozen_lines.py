"""Freeze a line: replace the plain values that it computes by constants, so that it no longer breaks the graph.

The source of the line's function is compiled again with the expressions of the line changed. While the line is frozen,
the functions run this code object in place of their own. No file changes.
"""

import ast
import gc
import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from trainkit.compiler import dynamo

RECORDER = "__trainkit_record__"  # a global of the function while its values are recorded
PLAIN_TYPES = (bool, int, float, str, type(None))
MOST_ELEMENTS = 1000  # of a list that becomes a constant

Definition = ast.FunctionDef | ast.AsyncFunctionDef
# Returns the expression for an expression of the line, from its number and whether it is a condition.
Replace = Callable[[int, ast.expr, bool], ast.expr]


class NotConstantError(ValueError):
    """A line that cannot be frozen, and why."""


@contextmanager
def frozen(file: str, line: int, call: Callable[[], object]) -> Iterator[None]:
    """Within it, the plain values that the statement in this line computes are constants.

    Plain values are numbers, strings, None, lists of them, and the side that an `if` takes. `call` runs the statement;
    it is called once, before, and the constants are the values of that call.

    Raises NotConstantError if the statement computes tensors only, or if its values differ within the call.
    """
    file = os.path.abspath(file)  # as in code objects
    functions = _functions_at(file, line)
    original = functions[0].__code__
    constants = {}
    for number, values in _record_values(functions, file, line, call).items():
        constant = _constant(values)
        if constant is not None:
            constants[number] = constant
    if not constants:
        raise NotConstantError("its result is a tensor, or differs each time it runs")

    def replace(number: int, expression: ast.expr, is_condition: bool) -> ast.expr:
        return constants.get(number, expression)

    with _running(functions, _compile_changed(original, file, line, replace)):
        yield


def _record_values(
    functions: list[FunctionType], file: str, line: int, call: Callable[[], object]
) -> dict[int, list[Any]]:
    """The values of each expression of the line during `call`, by the number of the expression."""
    values: dict[int, list[Any]] = {}

    def record(number: int, value: Any, is_condition: bool) -> Any:
        if is_condition:
            value = bool(value)
        values.setdefault(number, []).append(value)
        return value

    def replace(number: int, expression: ast.expr, is_condition: bool) -> ast.expr:
        arguments = [ast.Constant(number), expression, ast.Constant(is_condition)]
        return ast.Call(ast.Name(RECORDER, ast.Load()), arguments, [])

    recording = _compile_changed(functions[0].__code__, file, line, replace)
    module_globals = functions[0].__globals__
    module_globals[RECORDER] = record
    try:
        with _running(functions, recording):
            call()
    finally:
        del module_globals[RECORDER]
    return values


def _functions_at(file: str, line: int) -> list[FunctionType]:
    """All function objects that run the code of this line; of nested functions, the innermost.

    The garbage collector lists them, because it alone knows every function: methods, decorated functions, and closures
    that only an object holds. Each call of a `def` makes another function object with the same code.
    """
    gc.unfreeze()  # the collector does not list the objects that cli.importing has frozen
    functions = []
    for candidate in gc.get_objects():
        # isinstance would call into proxies and lazy objects, and these raise errors.
        if type(candidate) is FunctionType and _contains(candidate.__code__, file, line):
            functions.append(candidate)
    if not functions:
        raise NotConstantError("its function was not found")
    innermost = max(functions, key=lambda function: function.__code__.co_firstlineno).__code__
    return [function for function in functions if function.__code__ is innermost]


def _contains(code: CodeType, file: str, line: int) -> bool:
    if code.co_filename != file or line < code.co_firstlineno or dynamo.RESUMED.match(code.co_name):
        return False
    last_line = max(number or 0 for _, _, number in code.co_lines())
    return line <= last_line


@contextmanager
def _running(functions: list[FunctionType], code: CodeType) -> Iterator[None]:
    """Run the functions with another code."""
    original = functions[0].__code__
    for function in functions:
        function.__code__ = code
    try:
        yield
    finally:
        for function in functions:
            function.__code__ = original


def _compile_changed(code: CodeType, file: str, line: int, replace: Replace) -> CodeType:
    """The code of a function, compiled again with the expressions of the statement in this line replaced."""
    module = ast.parse("".join(linecache.getlines(file)))
    function = _definition(module, code)
    _ExpressionReplacer(replace).change(_statement_at(function, line))
    function.decorator_list = []
    owner = _class_of(module, function)
    changed = _compile_alone(function, owner, code.co_freevars, file)
    if changed.co_freevars != code.co_freevars:
        raise NotConstantError("it is in a closure that would lose a variable")
    return changed


def _definition(module: ast.Module, code: CodeType) -> Definition:
    """The `def` of a code object; the first line of code is that of the first decorator."""
    for node in ast.walk(module):
        if isinstance(node, Definition) and node.name == code.co_name:
            first_line = node.lineno
            for decorator in node.decorator_list:
                first_line = min(first_line, decorator.lineno)
            if first_line == code.co_firstlineno:
                return node
    raise NotConstantError("its function's source was not found")


def _statement_at(function: ast.AST, line: int) -> ast.stmt:
    """The innermost statement that holds this line."""
    statements = []
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function and node.lineno <= line <= (node.end_lineno or 0):
            statements.append(node)
    return max(statements, key=lambda statement: statement.lineno)


def _class_of(module: ast.Module, function: Definition) -> str | None:
    """The name of the innermost class around a function."""
    classes = []
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and function in ast.walk(node):
            classes.append(node)
    if not classes:
        return None
    return max(classes, key=lambda node: node.lineno).name


def _compile_alone(
    function: Definition, class_name: str | None, free_variables: tuple[str, ...], file: str
) -> CodeType:
    """The code of a `def` within scopes like its own.

    The parameters of an outer function are its free variables, so that the cells of the function objects fit the code.
    A class of the same name keeps private names (`self.__n`) as they are.
    """
    scopes: list[Any] = [ast.parse(f"def outer({', '.join(free_variables)}): pass").body[0]]
    if class_name is not None:
        scopes.append(ast.parse(f"class {class_name}: pass").body[0])
    scopes.append(function)
    for outer, inner in pairwise(scopes):
        outer.body = [inner]
    module = ast.fix_missing_locations(ast.Module([scopes[0]], []))
    code = compile(module, file, "exec")
    for scope in scopes:
        code = _nested_code(code, scope.name)
    return code


def _nested_code(code: CodeType, name: str) -> CodeType:
    return next(const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name)


class _ExpressionReplacer(ast.NodeTransformer):
    """Numbers the expressions of one statement that compute something, and replaces them, the inner ones first."""

    COMPUTING = (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Subscript)
    HEADS = ("test", "value", "iter", "msg", "exc")  # a compound statement's expressions, without its body

    def __init__(self, replace: Replace):
        self._replace = replace
        self._count = 0

    def change(self, statement: ast.stmt) -> None:
        for name, expression in ast.iter_fields(statement):
            if name not in self.HEADS or not isinstance(expression, ast.expr):
                continue
            if name == "test":
                setattr(statement, name, self._replaced(expression, is_condition=True))
            else:
                setattr(statement, name, self.visit(expression))

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.IfExp):
            node.test = self._replaced(node.test, is_condition=True)
            node.body = self.visit(node.body)
            node.orelse = self.visit(node.orelse)
            return node
        is_target = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if isinstance(node, self.COMPUTING) and not is_target:
            return self._replaced(node, is_condition=False)
        return super().generic_visit(node)

    def _replaced(self, expression: ast.expr, is_condition: bool) -> ast.expr:
        number = self._count  # the outer expression comes first
        self._count += 1
        super().generic_visit(expression)
        return self._replace(number, expression, is_condition)


def _constant(values: list[Any]) -> ast.expr | None:
    """An expression for a value that was plain and the same each time; otherwise None."""
    if type(values[0]) in (list, tuple):
        return _constant_sequence(values)
    first = _python_number(values[0])
    if type(first) not in PLAIN_TYPES:
        return None
    for value in values:
        value = _python_number(value)
        if type(value) is not type(first) or value != first:
            return None
    return ast.Constant(first)


def _constant_sequence(values: list[Any]) -> ast.expr | None:
    first = values[0]
    if len(first) > MOST_ELEMENTS:
        return None
    elements = []
    for element in first:
        constant = _constant([element])
        if constant is None:
            return None
        elements.append(constant)
    if any(value != first for value in values):
        return None
    if isinstance(first, list):
        return ast.List(elements, ast.Load())
    return ast.Tuple(elements, ast.Load())


def _python_number(value: Any) -> Any:
    """A number of NumPy as one of Python: NumPy's are no constants of code."""
    return value.item() if isinstance(value, np.generic) else value
