"""What a stage costs: CPU time, or the opcodes that Python runs, which are the same on every machine.

Stages nest: what runs inside an inner one is not the outer one's.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from types import FrameType
from typing import Any, Protocol

SERVER, ETCD = "API server in memory", "etcd in memory"
"""Not ours: they stand for other processes."""
OTHERS = (SERVER, ETCD)


class Meter(Protocol):
    """``spent``: so far, by stage."""

    spent: defaultdict[str, int]

    def enter(self, stage: str) -> None:
        """From here on it is this stage's."""
        ...

    def leave(self) -> None:
        """From here on it is the stage's before."""
        ...


class CpuMeter:
    """Nanoseconds of this thread's CPU."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, int] = defaultdict(int)
        self._stack: list[str] = []
        self._since = 0

    def enter(self, stage: str) -> None:
        """See ``Meter``."""
        self._charge()
        self._stack.append(stage)

    def leave(self) -> None:
        """See ``Meter``."""
        self._charge()
        self._stack.pop()

    def _charge(self) -> None:
        now = time.thread_time_ns()
        if self._stack:
            self.spent[self._stack[-1]] += now - self._since
        self._since = now


class OpcodeMeter:
    """Opcodes of Python code that begins to run within a stage; ``counting`` False: nothing is counted, at no cost.

    C code counts as the one opcode that calls it: what numpy and msgspec do inside is not seen here. ``by_file``: they
    are counted by the file that the code is in, too.
    """

    def __init__(self, *, by_file: bool = False) -> None:
        self.spent: defaultdict[str, int] = defaultdict(int)
        self.files: defaultdict[str, int] = defaultdict(int)
        self.counting = False
        self._stack: list[str] = []
        self._other: Any = None
        own = {OpcodeMeter.enter.__code__, OpcodeMeter.leave.__code__, OpcodeMeter._charge.__code__}
        self._count = 0

        def each(_frame: FrameType, _event: str, _argument: Any) -> Any:
            self._count += 1
            return each

        def each_by_file(frame: FrameType, _event: str, _argument: Any) -> Any:
            self._count += 1
            if self._stack and self._stack[-1] not in OTHERS:
                self.files[frame.f_code.co_filename] += 1
            return each_by_file

        local = each_by_file if by_file else each

        def begin(frame: FrameType, _event: str, _argument: Any) -> Any:
            if frame.f_code in own:
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return local

        self._begin = begin

    def enter(self, stage: str) -> None:
        """See ``Meter``."""
        self._charge()
        self._stack.append(stage)
        if self.counting and len(self._stack) == 1:
            self._other = sys.gettrace()
            sys.settrace(self._begin)

    def leave(self) -> None:
        """See ``Meter``."""
        if self.counting and len(self._stack) == 1:
            sys.settrace(self._other)
        self._charge()
        self._stack.pop()

    def _charge(self) -> None:
        if self._stack:
            self.spent[self._stack[-1]] += self._count
        self._count = 0
