"""Whether a backend works on this machine."""

import sysconfig

import pytest

from trainkit.compiler.backends import check_backend
from trainkit.config.errors import ConfigError


def test_without_pythons_headers_a_cpu_has_nothing_to_compile_with(monkeypatch, tmp_path, needs_compiler):
    monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(tmp_path))
    complaint = rf"its C\+\+ includes Python\.h, which {tmp_path} lacks; install Python's headers \(python3-dev of "
    for variable in ("CPATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match=complaint):
        check_backend("compile.backend", "inductor", "cpu", must_compile=True)
    check_backend("compile.backend", "inductor", "cpu", must_compile=False)
    check_backend("compile.backend", "inductor", "cuda", must_compile=True)
    (tmp_path / "Python.h").touch()
    check_backend("compile.backend", "inductor", "cpu", must_compile=True)
