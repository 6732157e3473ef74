"""Whole numbers in `$((…))`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

MAX_CHARACTERS = 200  # of an expression that is evaluated
_LARGEST = 1 << 63

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def evaluate(expression: str, variables: Mapping[str, str]) -> int | None:
    """The value of + - * / % with brackets, decimal numbers and variables; None where it is anything else."""
    try:
        if len(expression) > MAX_CHARACTERS:
            return None
        value = _value(ast.parse(expression.strip(), mode="eval").body, variables)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
    return value if abs(value) < _LARGEST else None


def _value(node: ast.expr, variables: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int:
            return number
        case ast.Name(id=name):
            return int(variables[name]) if name in variables else _unknown()
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, variables)
        case ast.BinOp(left=left, op=ast.Div() | ast.Mod() as op, right=right):
            dividend, divisor = _value(left, variables), _value(right, variables)
            quotient = abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)  # towards 0
            return quotient if isinstance(op, ast.Div) else dividend - quotient * divisor
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, variables), _value(right, variables))
    return _unknown()


def _unknown() -> int:
    raise ValueError("not evaluated")
