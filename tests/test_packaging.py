"""The wheel works outside the checkout, in an environment of its own and without any deep-learning framework."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import spinup

ROOT = Path(__file__).parent.parent


def python(executable, code, cwd):
    return subprocess.run([executable, "-c", code], cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_A40_the_wheel_is_pure_and_holds_every_package(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "spinup").rglob("*.py")}
    assert sources <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


@pytest.mark.slow
def test_A40_the_wheel_works_in_a_fresh_environment_without_extras(wheel, tmp_path):
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    executable = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = [executable, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, capture_output=True)

    done = python(executable, "import spinup; print(spinup.__version__, spinup.__file__)", tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(environment) in done.stdout

    done = python(executable, "from spinup import *; EpochLogger; import spinup.training.on_policy", tmp_path)
    assert done.returncode == 0, done.stderr

    for backend in spinup.BACKENDS:
        done = python(executable, f"import spinup; spinup.ppo_{backend}", tmp_path)
        assert f"pip install 'spinup[{backend}]'" in done.stderr.splitlines()[-1]

    done = subprocess.run(
        [executable, "-m", "spinup.run", "ppo", "--env", "CartPole-v1"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "spinup: spinup.ppo_pytorch needs PyTorch: pip install 'spinup[pytorch]'"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env"], "nothing is written where it is started"


def test_A39_importing_spinup_loads_no_framework():
    code = "import sys, spinup; print([m for m in ('torch', 'tensorflow', 'jax', 'mpi4py') if m in sys.modules])"
    assert python(sys.executable, code, ROOT).stdout.strip() == "[]"
