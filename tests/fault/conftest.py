"""Processes that may be killed: forks for what needs no torch, a fork server for what does."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import traceback
import warnings
from pathlib import Path

import pytest

_PATIENCE_S = 240
_PRELOADED = ["faiss", "kvpacket_store.api", "transformers.models.llama.modeling_llama"]


@pytest.fixture(scope="session")
def in_fork():
    """A function: run an action in a fork of this process → its exit status, its last words.

    The action gets a function that sends bytes to the parent. A status below 0 is a signal.
    """
    return _in_fork


def _in_fork(action, during=lambda pid, receive: None):
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        _act(action, send)
    os.close(send)
    during(pid, receive)
    with os.fdopen(receive, "rb") as words:
        said = words.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def _act(action, send):
    signal.alarm(_PATIENCE_S)  # a child that hangs is a failure too
    try:
        action(lambda message: os.write(send, message))
    except BaseException:
        os.write(send, traceback.format_exc().encode())
        os._exit(1)
    os._exit(0)


@pytest.fixture(scope="session")
def start_work():
    """A function: start ``main(connection, *arguments)`` of a script beside this file.

    It returns the process and our end of the connection. The fork server has torch loaded and
    nothing run, so a start costs milliseconds and no thread is lost in the fork.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)

    def start(script, *arguments):
        ours, theirs = context.Pipe()
        job = {"job": (theirs, *arguments)}
        path = str(Path(__file__).with_name(script))
        process = context.Process(target=runpy.run_path, args=(path, job, "__work__"))
        process.start()
        theirs.close()
        return process, ours

    return start
