import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import siteannex.training.epoch as package
from siteannex.training.rendering.shipping import epoch_runner

MODULES = sorted(Path(package.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_the_runner_is_python_3_8(module: Path) -> None:
    ast.parse(module.read_text(), feature_version=(3, 8))


def test_the_runner_calls_nothing_that_python_3_8_lacks() -> None:
    # Annotations are never evaluated there.
    vermin = Path(sys.executable).with_name("vermin")
    options = ["--target=3.8-", "--no-tips", "--no-eval-annotations", "--violations"]
    done = subprocess.run([vermin, *options, *map(str, MODULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_runner_imports_itself_and_the_standard_library_only() -> None:
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert str(node.module).partition(".")[0] in sys.stdlib_module_names


def test_it_is_one_file_the_same_each_time_and_runs_by_itself(tmp_path: Path) -> None:
    content = epoch_runner()
    assert content == epoch_runner()
    assert zipfile.ZipFile(io.BytesIO(content)).testzip() is None
    program = tmp_path / "siteannex-epoch"
    program.write_bytes(content)
    program.chmod(0o755)
    done = subprocess.run([str(program), "--help"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0
    assert "siteannex-epoch [options] -- COMMAND" in done.stdout
