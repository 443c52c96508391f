"""Code that a backend compiles at load is kept for the next load, and nothing else is trusted, written or removed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.cli import main
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import BackendCache, CompilationCache
from delegraph.interfaces import compilation_cache as module
from delegraph.program.schema import CompileSpec
from delegraph.runtime import BackendInterface, Runtime
from delegraph.runtime.resolution.environment import Environment

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")


class Compiler(BackendInterface):
    """Adds the number in its blob, which it compiles to one float32 in a file."""

    def __init__(self) -> None:
        self.compiled = 0

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        def save(folder: Path) -> None:
            self.compiled += 1
            (folder / "code").write_bytes(np.float32(bytes(processed)).tobytes())

        folder = context.cache.kept(save, driver="compiler 1", blob=[processed])
        return np.float32(bytes(processed)) if folder is None else np.fromfile(folder / "code", np.float32)[0]

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        np.add(args[0], handle, out=args[1])


class Plain(Compiler):
    """Written against API 1.0."""

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        return np.float32(bytes(processed))


@pytest.fixture
def cache(tmp_path: Path) -> CompilationCache:
    return CompilationCache(tmp_path / "kept")


@pytest.fixture
def written() -> list[str]:
    """Gets the content of each code that `code` compiles."""
    return []


@pytest.fixture
def code(cache: CompilationCache, written: list[str]) -> Any:
    """The content of the entry of a blob, made where it is not there; None where it is not kept."""

    def of(blob: bytes = b"blob", driver: str = "driver 1", options: str = "", **changes: Any) -> bytes | None:
        content = repr((blob, driver, options))

        def write(folder: Path) -> None:
            written.append(content)
            (folder / "parts").mkdir()
            (folder / "parts" / "code").write_text(content)

        part = BackendCache("Compiler", replace(cache, **changes))
        folder = part.kept(write, driver=driver, blob=[blob], options=options)
        return None if folder is None else (folder / "parts" / "code").read_bytes()

    return of


@pytest.fixture
def program(build: Any) -> Any:
    """x + 2.5."""
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Compiler", x, out, blob=b"2.5")
    return build.program(build.plan([x], [out]))


def runs(program: Any, backend: BackendInterface, **choices: Any) -> float:
    method = Runtime(backends={"Compiler": backend}, **choices).load_program(program).load_method("forward")
    return float(method.execute([np.ones(1, np.float32)])[0][0])


def test_a_backend_compiles_once(program: Any, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for choice in (folder, str(folder), CompilationCache(folder)):
        backend = Compiler()
        assert runs(program, backend, cache=choice) == 3.5
        assert backend.compiled == (choice is folder)


def test_nothing_is_kept_unasked(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))
    backend = Compiler()
    for value in ("", "0"):
        monkeypatch.setenv("DELEGRAPH_CACHE", value)
        assert runs(program, backend) == 3.5
    monkeypatch.setenv("DELEGRAPH_CACHE", "1")
    assert runs(program, backend, cache=False) == 3.5
    assert (backend.compiled, list(tmp_path.iterdir())) == (0, [])


def test_the_environment_chooses(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "platform_folder", lambda: tmp_path / "platform's")
    for value, folder in (("1", "platform's"), (str(tmp_path / "named"), "named")):
        monkeypatch.setenv("DELEGRAPH_CACHE", value)
        assert runs(program, Compiler()) == 3.5
        assert len(CompilationCache(tmp_path / folder).entries()) == 1
    monkeypatch.setenv("DELEGRAPH_CACHE_BYTES", "123")
    assert CompilationCache.of(True) == CompilationCache(tmp_path / "platform's", 123)
    monkeypatch.setenv("DELEGRAPH_CACHE_BYTES", "much")
    with pytest.raises(InvalidArgument, match="DELEGRAPH_CACHE_BYTES='much'"):
        CompilationCache.of(True)
    with pytest.raises(InvalidArgument, match="cache=5"):
        CompilationCache.of(5)  # type: ignore[arg-type]


def test_a_backend_without_it_works(program: Any, cache: CompilationCache) -> None:
    assert runs(program, Plain(), cache=cache) == 3.5
    assert cache.entries() == []


def test_another_process_has_the_choice(cache: CompilationCache) -> None:
    assert pickle.loads(pickle.dumps(Environment.of(cache=cache))).cache == cache


def test_the_key_is_all_that_code_depends_on(
    code: Any, written: list[str], cache: CompilationCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: tuple[dict[str, Any], ...] = ({}, {"blob": b"other"}, {"driver": "driver 2"}, {"options": "O3"})
    for _ in range(2):
        assert len({code(**changes) for changes in others}) == 4
    assert len(written) == len(cache.entries()) == 4
    monkeypatch.setattr("delegraph.interfaces.host.host_description", lambda: "another machine")
    code()
    assert len(written) == 5
    BackendCache("Other", cache).kept(lambda folder: written.append("other"), driver="driver 1", blob=[b"blob"])
    assert len(written) == 6


def test_where_a_piece_ends_is_in_the_key(cache: CompilationCache) -> None:
    part = BackendCache("Compiler", cache)
    folders = {part.kept(lambda _: None, driver="1", blob=blob) for blob in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"])}
    assert len(folders) == 3


def test_what_is_kept_is_its_owners_alone(code: Any, cache: CompilationCache) -> None:
    code()
    (entry,) = cache.entries()
    if os.name == "posix":
        for path in (cache.folder, entry.path, *entry.path.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0
    assert [path.name for path in cache.folder.iterdir()] == [entry.path.name]


def test_damage_is_made_anew(code: Any, written: list[str], cache: CompilationCache) -> None:
    expected = code()
    (entry,) = cache.entries()
    kept = entry.path / "parts" / "code"
    damages: list[Any] = [
        lambda: kept.write_bytes(b""),
        lambda: kept.write_bytes(bytes(len(expected))),
        kept.unlink,
        lambda: (entry.path / "more").write_bytes(b""),
        (entry.path / "entry.json").unlink,
        lambda: (entry.path / "entry.json").write_text("[]"),
        lambda: (entry.path / "entry.json").write_text("{"),
    ]
    for count, damage in enumerate(damages, 2):
        damage()
        if kept.exists():
            os.utime(kept, (count, count))  # clocks of file systems tick slowly
        assert (code(), code(), len(written)) == (expected, expected, count)


def test_an_entry_of_another_key_is_not_taken(code: Any, written: list[str], cache: CompilationCache) -> None:
    code(b"first")
    (entry,) = cache.entries()
    name = entry.path.name
    entry.path.rename(cache.folder / "aside")
    code(b"second")
    (other,) = cache.entries()
    other.path.rename(cache.folder / name)
    assert b"first" in code(b"first")
    assert len(written) == 3


@posix
def test_what_others_may_write_is_not_read(code: Any, written: list[str], cache: CompilationCache) -> None:
    code()
    for count, name in enumerate(("", "parts", "parts/code", "entry.json"), 2):
        (entry,) = cache.entries()
        (entry.path / name).chmod(0o777)
        code()
        assert len(written) == count
    cache.folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to the folder"):
        assert code() is None


@posix
def test_links_are_not_followed(code: Any, written: list[str], cache: CompilationCache, tmp_path: Path) -> None:
    expected = code()
    (entry,) = cache.entries()
    kept = entry.path / "parts" / "code"
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert code() == expected
    assert len(written) == 2
    assert (tmp_path / "elsewhere").read_bytes() == expected


def test_the_least_recently_used_goes(code: Any, cache: CompilationCache) -> None:
    def kept() -> dict[str, Path]:
        return {(entry.path / "parts" / "code").read_text()[3]: entry.path for entry in cache.entries()}

    for blob in (b"0", b"1", b"2"):
        code(blob)
    for number, path in kept().items():
        os.utime(path / "entry.json", (int(number), int(number)))
    room = sum(entry.nbytes for entry in cache.entries())
    code(b"0")
    code(b"3", max_bytes=room)
    assert kept().keys() == {"0", "2", "3"}


def test_code_larger_than_the_bound_is_not_kept(code: Any, cache: CompilationCache) -> None:
    with pytest.warns(RuntimeWarning, match="more than its bound of 100"):
        assert code(max_bytes=100) is None
    assert list(cache.folder.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "no room"), DelegateInvalidCompatibility("the engine refuses it")])
def test_what_cannot_be_written_is_no_entry(cache: CompilationCache, error: Exception) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_bytes(b"half")
        raise error

    with pytest.warns(RuntimeWarning, match="does not keep a delegate of Compiler: .*(no room|refuses)"):
        assert BackendCache("Compiler", cache).kept(write, driver="1", blob=[]) is None
    assert list(cache.folder.iterdir()) == []


def test_a_folder_that_cannot_be_is_as_none(program: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="does not keep"):
        assert runs(program, Compiler(), cache=tmp_path / "file" / "below") == 3.5


def test_a_backends_error_is_its_own(cache: CompilationCache) -> None:
    with pytest.raises(ZeroDivisionError):
        BackendCache("Compiler", cache).kept(lambda _: 1 / 0, driver="1", blob=[])
    assert list(cache.folder.iterdir()) == []


def test_leftovers_of_killed_processes_go(code: Any, cache: CompilationCache) -> None:
    cache.folder.mkdir(mode=0o700)
    for name in (".new-old", ".new-young", "of_somebody_else"):
        (cache.folder / name).mkdir()
    os.utime(cache.folder / ".new-old", (0, 0))
    os.utime(cache.folder / "of_somebody_else", (0, 0))
    code()
    assert sorted(path.name for path in cache.folder.iterdir())[:1] == [".new-young"]
    assert (cache.folder / "of_somebody_else").is_dir()
    assert len(list(cache.folder.iterdir())) == 3


MANY = """
import sys
from pathlib import Path
from delegraph.interfaces import BackendCache, CompilationCache

part = BackendCache("Compiler", CompilationCache(Path(sys.argv[1]), 9_000))
for number in range(60):
    blob = b"%d" % (number % 5)
    folder = part.kept(lambda folder: (folder / "code").write_bytes(blob * 1000), driver="1", blob=[blob])
    if folder is not None:
        try:
            content = (folder / "code").read_bytes()
        except FileNotFoundError:
            continue  # another process had no room for it
        assert content == blob * 1000
"""


def test_processes_share_it(cache: CompilationCache) -> None:
    """Entries are made, read and removed for room by several processes, and none sees a part of one."""
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", MANY, str(cache.folder)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    assert sum(entry.nbytes for entry in cache.entries()) <= 9_000


def test_the_command_shows_and_empties_it(
    code: Any, cache: CompilationCache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code()
    (cache.folder / "of_somebody_else").write_bytes(b"")
    assert main(["cache", str(cache.folder)]) == 0
    shown = capsys.readouterr().out
    assert "Compiler" in shown
    assert "driver 1" in shown
    assert "1 entries" in shown
    monkeypatch.setenv("DELEGRAPH_CACHE", str(cache.folder))
    assert main(["cache", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [entry["key"]["backend"] for entry in told["entries"]] == ["Compiler"]
    assert main(["cache", "--clear"]) == 0
    assert "0 entries" in capsys.readouterr().out
    assert [path.name for path in cache.folder.iterdir()] == ["of_somebody_else"]


def test_an_option_of_the_backends_own_warns(cache: CompilationCache) -> None:
    with pytest.warns(FutureWarning, match=r"option cache of Compiler is deprecated: use delegraph.load\(…, cache="):
        part = BackendCache("Compiler").in_folder(str(cache.folder))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part.kept(lambda _: None, driver="1", blob=[]) is not None


def test_large_files_that_entries_have_in_common_are_there_once(cache: CompilationCache) -> None:
    common = bytes(100_000)

    def made(name: str) -> Path:
        def write(folder: Path) -> None:
            (folder / "common").write_bytes(common)
            (folder / "own").write_text(name)

        folder = BackendCache("Compiler", cache).kept(write, driver="1", blob=[name.encode()])
        assert folder is not None
        return folder

    first, second = made("first"), made("second")
    assert os.path.samefile(first / "common", second / "common")
    assert 100_000 < sum(entry.nbytes for entry in cache.entries()) < 110_000
    BackendCache("Compiler", cache).discard(first)
    assert made("second") == second
    assert (second / "common").read_bytes() == common


def test_a_damaged_file_is_not_taken_over_by_the_next_entry(cache: CompilationCache) -> None:
    def made(blob: bytes) -> Path:
        part = BackendCache("Compiler", cache)
        folder = part.kept(lambda folder: (folder / "common").write_bytes(bytes(100_000)), driver="1", blob=[blob])
        assert folder is not None
        return folder

    first = made(b"first")
    (first / "common").write_bytes(b"1" * 100_000)
    os.utime(first / "common", (1, 1))
    assert (made(b"second") / "common").read_bytes() == bytes(100_000)


# ---- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda entry: (entry / "entry.json").write_text("[]"), "has no record"),
        (lambda entry: (entry / "more").write_bytes(b""), "is another entry"),
        pytest.param(lambda entry: (entry / "link").symlink_to("code"), "is neither a file nor a folder", marks=posix),
    ],
)
def test_an_entry_that_is_not_taken_says_why(code: Any, cache: CompilationCache, damage: Any, said: str) -> None:
    code()
    (entry,) = cache.entries()
    key = json.loads((entry.path / "entry.json").read_bytes())["key"]
    damage(entry.path)
    with pytest.raises(ValueError, match=said):
        module._check(entry.path, key)


def test_a_choice_that_is_none() -> None:
    with pytest.raises(InvalidArgument, match="cache=3 is neither a folder nor True, False or None"):
        CompilationCache.of(3)  # type: ignore[arg-type]
