"""Keeps a process from changing files outside one folder, by the Landlock module of the Linux kernel.

The tests that run real programs need it beside the rules of their generators: a mistake in either must not cost a file.
"""

import ctypes
import os
from typing import Final

__all__ = ["confine", "is_available"]

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES: Final = 38
_BENEATH: Final = 1
# Write, remove and make; from the second and third version on: move between folders, truncate.
_CHANGES: Final = 1 << 1 | sum(1 << bit for bit in range(4, 13))
_MOVE, _TRUNCATE = 1 << 13, 1 << 14
_WRITE: Final = 1 << 1


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def _system_call(*arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))


def _version() -> int:
    try:
        return _system_call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except (AttributeError, OSError):
        return -1


def is_available() -> bool:
    """Tell whether this kernel can confine a process, and knows how to let it move files inside its folder."""
    return _version() >= 3


def confine(folder: str) -> None:
    """Let this process, and those it starts, change nothing but what lies in the folder, and /dev/null."""
    every = _CHANGES | _MOVE | _TRUNCATE
    handled = ctypes.c_uint64(every)
    rules = _checked(_system_call(_CREATE, ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0)))
    for place, allowed in ((folder, every), ("/dev/null", _WRITE | _TRUNCATE)):
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        rule = _Rule(allowed, descriptor)
        _checked(_system_call(_ADD_RULE, rules, _BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)))
        os.close(descriptor)
    _checked(int(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)))
    _checked(_system_call(_RESTRICT, rules, ctypes.c_uint32(0)))
    os.close(rules)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the process cannot be confined")
    return result
