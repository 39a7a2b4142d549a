"""The packer on a small tree: what it takes, that it is the same bytes each time, and each way it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteannex.annex.pack import choose, chosen, pack_installed, pack_release, run_local
from siteannex.annex.packing.archive import Member, tar_gz
from siteannex.annex.packing.elf import read_elf
from siteannex.annex.packing.recipe import wrapper
from siteannex.annex.packing.source import Tree
from siteannex.annex.packing.versions import check_versions, version_tuple
from siteannex.errors import AnnexError
from siteannex.ports import CommandResult
from tests.faultbook import FaultRow
from tests.unit.pack_ground import VERSION, foreign, make_release, make_root, native_libraries, native_program
from tests.unit.samples import software


def nothing(argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
    """A Runner on a machine where no HTCondor is configured."""
    if argv[0].startswith("condor"):
        return CommandResult(127, "", f"{argv[0]}: not found")
    return run_local(argv, timeout_s=timeout_s)


def test_what_is_packed_runs_from_any_place_through_its_own_loader(tmp_path: Path) -> None:
    packed = pack_installed(tmp_path / "cache", runner=nothing, root=make_root(tmp_path / "root"))
    assert packed.version == VERSION
    assert packed.arch == os.uname().machine
    assert Path(packed.path).stat().st_size == packed.size_bytes
    assert hashlib.sha256(Path(packed.path).read_bytes()).hexdigest() == packed.sha256
    here = tmp_path / "else where"
    with tarfile.open(packed.path) as tar:
        tar.extractall(here)  # noqa: S202  (our own archive)
    for program in ("sbin/condor_master", "bin/condor_ping", "libexec/condor_shared_port"):
        assert subprocess.run([here / program], check=False).returncode == 0
    loader = next(name for name in native_libraries() if name.startswith("ld"))
    assert f'exec "$d/lib/{loader}" --library-path "$d/lib"' in (here / "sbin/condor_master").read_text()


def test_the_manifest_says_what_is_inside_and_what_was_left_out(tmp_path: Path) -> None:
    packed = pack_installed(tmp_path / "cache", runner=nothing, root=make_root(tmp_path / "root"))
    with tarfile.open(packed.path) as tar:
        manifest_file = tar.extractfile("MANIFEST.json")
        assert manifest_file is not None
        manifest = json.load(manifest_file)
        names = {member.name for member in tar if member.isreg()}
    assert manifest["htcondor"] == VERSION
    assert set(manifest["files"]) == names - {"MANIFEST.json"}
    assert "libexec/curl_plugin" in manifest["left_out"]
    assert "libexec/check-url" in manifest["files"]
    assert manifest["glibc_bundled"] != "0.0"


def test_the_same_tree_packs_to_the_same_bytes_whatever_its_times(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    first = pack_installed(tmp_path / "one", runner=nothing, root=root)
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    second = pack_installed(tmp_path / "two", runner=nothing, root=root)
    assert first.sha256 == second.sha256
    with tarfile.open(first.path) as tar:
        members = tar.getmembers()
    assert [member.name for member in members if member.isreg()] == sorted(m.name for m in members if m.isreg())
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}


def test_a_second_pack_reads_nothing_but_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(tmp_path / "root")
    first = pack_installed(tmp_path / "cache", runner=nothing, root=root)
    monkeypatch.setattr("siteannex.annex.pack._pack", lambda *_: pytest.fail("packed again"))
    assert pack_installed(tmp_path / "cache", runner=nothing, root=root) == first


@pytest.mark.parametrize("spoil", ["program", "tarball", "record"])
def test_a_changed_program_or_a_damaged_cache_is_packed_anew(tmp_path: Path, spoil: str) -> None:
    root = make_root(tmp_path / "root")
    first = pack_installed(tmp_path / "cache", runner=nothing, root=root)
    if spoil == "program":
        make_root(root, version="25.2.0")
    elif spoil == "tarball":
        Path(first.path).write_bytes(b"short")
    else:
        next((tmp_path / "cache").glob("*.json")).write_text("[]")
    second = pack_installed(tmp_path / "cache", runner=nothing, root=root)
    assert hashlib.sha256(Path(second.path).read_bytes()).hexdigest() == second.sha256
    assert second.version == ("25.2.0" if spoil == "program" else VERSION)


def test_without_htcondor_the_missing_programs_are_named(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root", without=("condor_startd", "condor_ping"))
    with pytest.raises(AnnexError) as problem:
        pack_installed(tmp_path / "cache", runner=nothing, root=root)
    assert problem.value.failure.code == "ep-source-missing"
    assert "sbin/condor_startd, bin/condor_ping" in problem.value.failure.summary


def test_a_library_that_is_not_there_is_named_with_who_needs_it(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root", libraries=False)
    with pytest.raises(AnnexError) as problem:
        pack_installed(tmp_path / "cache", runner=nothing, root=root)
    failure = problem.value.failure
    assert failure.code == "ep-not-selfcontained"
    assert "libc.so.6" in failure.summary
    assert "condor_master needs libc.so.6: not found" in failure.evidence[0].text


def test_what_does_not_run_here_is_not_shipped(tmp_path: Path) -> None:
    def broken(argv: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        return CommandResult(127, "", "libstdc++.so.6: version `GLIBCXX_3.4.32' not found")

    with pytest.raises(AnnexError) as problem:
        pack_installed(tmp_path / "cache", runner=broken, root=make_root(tmp_path / "root"))
    assert problem.value.failure.code == "ep-not-selfcontained"
    assert "GLIBCXX_3.4.32" in problem.value.failure.evidence[0].text
    assert not list(tmp_path.glob("cache/*.tar.gz"))


@pytest.mark.fault("loader too old for the programs", code="ep-not-selfcontained")
def test_a_glibc_older_than_what_the_programs_need_is_refused_naming_both(tmp_path: Path, fault: FaultRow) -> None:
    root = make_root(tmp_path / "root")
    with (root / "usr/sbin/condor_master").open("ab") as program:
        program.write(b"\0GLIBC_2.99\0")
    with pytest.raises(AnnexError) as problem:
        pack_installed(tmp_path / "cache", runner=nothing, root=root)
    assert problem.value.failure.code == "ep-not-selfcontained"
    assert "needs glibc 2.99, this machine has 2." in problem.value.failure.summary
    fault.saw(problem.value.failure)


def test_a_release_tarball_packs_like_an_installed_one(tmp_path: Path) -> None:
    archive = make_release(make_root(tmp_path / "root"), tmp_path / "condor.tar.gz")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    packed = pack_release(str(archive), sha256, tmp_path / "cache", runner=nothing, root=tmp_path / "empty")
    assert packed.version == VERSION
    archive.unlink()
    assert pack_release(str(archive), sha256.upper(), tmp_path / "cache", runner=nothing) == packed


def test_what_was_packed_last_is_what_up_ships(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert chosen("x86_64", cache) is None
    packed = pack_installed(cache, runner=nothing, root=make_root(tmp_path / "root"))
    choose(packed, packed.arch, cache)
    assert chosen(packed.arch, cache) == packed
    assert chosen("riscv64", cache) is None
    Path(packed.path).write_bytes(b"cut off")
    assert chosen(packed.arch, cache) is None
    choose(None, packed.arch, cache)
    assert not list(cache.glob("chosen-*"))


def test_a_release_for_another_processor_without_its_glibc_is_refused(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    for place in ("usr/sbin", "usr/bin", "usr/libexec/condor"):
        for path in (root / place).glob("condor_*"):
            foreign(path)
    archive = make_release(root, tmp_path / "condor.tar.gz")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    with pytest.raises(AnnexError) as problem:
        pack_release(str(archive), sha256, tmp_path / "cache", runner=nothing)
    assert problem.value.failure.code == "ep-not-selfcontained"


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        ("checksum", "ep-source-corrupt", "not what its checksum says"),
        ("no-sum", "ep-source-corrupt", "64 hexadecimal digits"),
        ("not-a-tar", "ep-source-corrupt", "cannot be unpacked"),
        ("no-file", "ep-source-missing", "there is no file"),
        ("no-host", "ep-source-missing", "could not be downloaded"),
    ],
)
def test_a_release_that_is_not_what_was_promised_is_refused(tmp_path: Path, spoil: str, code: str, words: str) -> None:
    archive = make_release(make_root(tmp_path / "root"), tmp_path / "condor.tar.gz")
    if spoil == "not-a-tar":
        archive.write_bytes(b"<html>not found</html>")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = {"no-file": "/nonexistent.tar.gz", "no-host": "http://127.0.0.1:9/condor.tar.gz"}.get(spoil, str(archive))
    sha256 = {"checksum": "0" * 64, "no-sum": "abc"}.get(spoil, sha256)
    with pytest.raises(AnnexError) as problem:
        pack_release(source, sha256, tmp_path / "cache", runner=nothing)
    assert problem.value.failure.code == code
    assert words in problem.value.failure.summary


def test_a_release_tarball_cannot_write_outside_its_place(tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    archive = tmp_path / "condor.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root / "usr", "c/usr")
        tar.add(native_program(), "../condor_evil.so.1")
        link = tarfile.TarInfo("c/usr/lib64/libout.so.1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    packed = pack_release(str(archive), sha256, tmp_path / "cache", runner=nothing)
    with tarfile.open(packed.path) as tar:
        assert not [name for name in tar.getnames() if "evil" in name or "libout" in name]
    assert not (tmp_path.parent / "condor_evil.so.1").exists()


def test_versions_that_fit_pass_in_silence() -> None:
    check_versions(software(), "25.14.1", "x86_64")
    check_versions(replace(software(), version="23.9.6"), "25.14.1", "x86_64")


@pytest.mark.parametrize(
    ("version", "cm", "arch", "code", "both"),
    [
        ("25.14.1", "23.9.6", "x86_64", "ep-newer-than-cm", ("25.14.1", "23.9.6")),
        ("25.14.1", "25.9.6", "x86_64", "ep-newer-than-cm", ("25.14.1", "25.9.6")),
        ("25.14.2", "25.14.1", "x86_64", "ep-newer-than-cm", ("25.14.2", "25.14.1")),
        ("25.14.1", "25.14.1", "aarch64", "ep-arch-mismatch", ("x86_64", "aarch64")),
    ],
)
def test_software_that_would_never_match_is_refused_naming_both(
    version: str, cm: str, arch: str, code: str, both: tuple[str, str]
) -> None:
    with pytest.raises(AnnexError) as problem:
        check_versions(replace(software(), version=version), cm, arch, site="lab")
    assert problem.value.failure.code == code
    assert problem.value.failure.site == "lab"
    assert all(word in problem.value.failure.summary for word in both)


def test_a_version_is_read_wherever_it_stands() -> None:
    assert version_tuple("$CondorVersion: 25.14.1 2026-10-16 PackageID: 25.14.1+dfsg-1 $") == (25, 14, 1)
    assert version_tuple("unknown") == ()


@given(st.tuples(*[st.integers(0, 99)] * 3), st.tuples(*[st.integers(0, 99)] * 3))
def test_an_ep_is_refused_exactly_when_it_is_newer(ep: tuple[int, int, int], cm: tuple[int, int, int]) -> None:
    def dotted(version: tuple[int, int, int]) -> str:
        return ".".join(map(str, version))

    try:
        check_versions(replace(software(), version=dotted(ep)), dotted(cm), "x86_64")
    except AnnexError:
        assert ep > cm
    else:
        assert ep <= cm


def test_this_machines_own_program_reads_as_elf() -> None:
    elf = read_elf(native_program().read_bytes())
    assert elf is not None
    assert "libc.so.6" in elf.needed
    assert elf.arch == os.uname().machine
    assert elf.glibc >= (2, 2)


@given(st.binary(max_size=300))
def test_no_bytes_upset_the_elf_reader(data: bytes) -> None:
    read_elf(data)
    read_elf(b"\x7fELF\x02\x01" + data)


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=8))
def test_a_damaged_program_upsets_nobody(where: int, damage: bytes) -> None:
    data = bytearray(native_program().read_bytes()[:20000])
    data[where : where + len(damage)] = damage
    read_elf(bytes(data))


@given(st.dictionaries(st.text("abc/", min_size=1).filter(lambda t: "//" not in t and t.strip("/") == t), st.binary()))
def test_an_archive_depends_on_its_files_alone(files: dict[str, bytes]) -> None:
    tree = {f"x/{name}": Member(data, 0o600) for name, data in files.items()}
    assert tar_gz(tree) == tar_gz(dict(reversed(tree.items())))


def test_an_absolute_link_in_a_tree_stays_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("of the tree")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../../../../etc")
    (tmp_path / "loop").symlink_to("loop")
    tree = Tree(tmp_path)
    assert tree.find("/link") == tmp_path / "etc/passwd"
    assert tree.find("/up/passwd") == tmp_path / "etc/passwd"
    assert tree.find("/loop") is None
    assert tree.find("/nothing") is None


def test_old_loaders_get_no_argument_they_do_not_know() -> None:
    assert "--argv0" in wrapper("condor_on", "ld.so", (2, 33))
    assert "--argv0" not in wrapper("condor_on", "ld.so", (2, 28))


def test_the_real_runner_answers_for_missing_slow_and_working_programs() -> None:
    assert run_local(["/nonexistent"]).status == 127
    assert run_local(["sleep", "5"], timeout_s=0.05).status == 124
    assert run_local(["echo", "$HOME"]).stdout == "$HOME\n"
