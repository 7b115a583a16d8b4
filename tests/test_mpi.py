"""MPI tools: alone, in a world of two ranks, and as a launcher."""

import os
import shutil
import subprocess
import sys
import textwrap
import time

import backends
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from spinup.utils import mpi_pytorch, mpi_tools
from spinup.utils.mpi_pytorch import mpi_avg_grads, setup_pytorch_for_mpi, sync_params
from spinup.utils.mpi_tools import mpi_avg, mpi_fork, mpi_op, mpi_statistics_scalar, mpi_sum

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """A process that no launcher has started, whatever the tests before have done."""
    for name in mpi_tools.LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    mpi_tools._load_world.cache_clear()
    yield
    mpi_tools._load_world.cache_clear()


@pytest.fixture
def no_mpi4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)


def run(*command, **env):
    env = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", **env}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def mpirun(code, n=2):
    """Run code on n ranks; it finds `rank` defined. Returns the lines that they print, sorted."""
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    setup = "import numpy as np\nfrom spinup.utils.mpi_tools import *\nrank = proc_id()\n"
    command = [shutil.which("mpirun", path=places), "--oversubscribe", "-np", str(n), sys.executable]
    done = run(*command, "-c", setup + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


# --- one process alone --------------------------------------------------------------------------------------


def test_M01_one_process_needs_no_mpi4py(no_mpi4py, capsys):
    assert (mpi_tools.proc_id(), mpi_tools.num_procs()) == (0, 1)
    x, out = np.arange(3.0), np.zeros(3)
    mpi_tools.allreduce(x, out)
    mpi_tools.broadcast(x)
    assert out.tolist() == x.tolist() == [0, 1, 2]
    assert mpi_sum(2) == mpi_avg(2) == mpi_op(2, op=None) == 2
    assert mpi_statistics_scalar([1, 3], with_min_and_max=True) == (2, 1, 1, 3)
    mpi_fork(1)
    mpi_fork(0)
    mpi_tools.msg("hello", "note")
    assert capsys.readouterr().out == "Message from 0: note\thello\n"


@pytest.mark.parametrize(
    "variables",
    [{}, {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, {"OMPI_COMM_WORLD_SIZE": "1"}, {"PMI_SIZE": "1"}],
    ids=str,
)
def test_M01_a_world_of_one_needs_no_mpi4py(no_mpi4py, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mpi_tools.num_procs() == 1


@pytest.mark.parametrize("variable", mpi_tools.LAUNCHER_VARIABLES)
def test_M01_launcher_without_mpi4py_is_an_error_of_one_line(no_mpi4py, monkeypatch, variable):
    monkeypatch.setenv(variable, "2")
    with pytest.raises(RuntimeError, match=r'^an MPI launcher.* pip install "spinup\[mpi\]"$'):
        mpi_tools.proc_id()


def test_M01_mpi4py_is_not_imported_unless_asked_for():
    code = """
        import sys
        from spinup.utils import mpi_tools
        mpi_tools.mpi_statistics_scalar([1.0], True)
        assert "mpi4py" not in sys.modules
        assert mpi_tools.mpi_op(3.0, mpi_tools.MPI.MAX) == 3 and "mpi4py.MPI" in sys.modules
        assert mpi_tools.num_procs() == 1
    """
    done = run(sys.executable, "-c", textwrap.dedent(code))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("average", [mpi_sum, mpi_avg])
@pytest.mark.parametrize(
    "x, expected",
    [
        (3, np.float64(3)),
        (True, np.float64(1)),
        (0.1, np.float64(0.1)),
        (np.int64(3), np.float64(3)),
        (np.float32(0.1), np.float32(0.1)),
        (np.array(0.1), np.float64(0.1)),
        (torch.tensor(0.5, requires_grad=True), np.float32(0.5)),
        ([1, 2], np.array([1.0, 2.0])),
        (np.ones((2, 2), dtype=np.float32), np.ones((2, 2), dtype=np.float32)),
        (np.ones((2, 4))[:, ::2], np.ones((2, 2))),
        (torch.arange(2), np.array([0.0, 1.0])),
    ],
    ids=repr,
)
def test_M04_precision_and_type(average, x, expected):
    result = average(x)
    assert type(result) is type(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)


def test_mpi_sum_returns_a_copy():
    x = np.zeros(2)
    mpi_sum(x)[:] = 1
    assert not x.any()


def test_mpi_avg_of_a_scalar_has_item():
    assert mpi_avg(3).item() == mpi_avg(torch.tensor(3.0)).item() == mpi_avg(np.array([3.0])).item() == 3


def test_M05_no_samples_give_nan_quietly(recwarn):
    assert np.isnan(mpi_statistics_scalar([], with_min_and_max=True)).tolist() == [True] * 4
    assert np.isnan(mpi_statistics_scalar([])).tolist() == [True] * 2
    assert not recwarn


def test_M06_elements_are_counted_not_rows():
    x = np.array([[1, 2, 3], [4, 5, 9]])
    mean, std, low, high = mpi_statistics_scalar(x, with_min_and_max=True)
    assert (mean, std, low, high) == (4, pytest.approx(x.std(), rel=1e-15), 1, 9)


def test_statistics_keep_single_precision_arrays_single():
    x = np.array([1, 3], dtype=np.float32)
    mean, std = mpi_statistics_scalar(x)
    assert ((x - mean) / std).dtype == np.float32


# --- PyTorch ------------------------------------------------------------------------------------------------


def test_pytorch_alone_changes_nothing(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda n: pytest.fail("changed the threads"))
    net = torch.nn.Linear(2, 1)
    setup_pytorch_for_mpi()
    mpi_avg_grads(net)
    sync_params(net)
    assert net.weight.grad is None


@pytest.mark.parametrize("threads, procs, share", [(8, 2, 4), (8, 16, 1), (7, 2, 3), (1, 4, 1)])
def test_M07_threads_are_divided_once(monkeypatch, threads, procs, share):
    now = [threads]
    monkeypatch.setattr(mpi_pytorch, "_fair_share", None)
    monkeypatch.setattr(mpi_pytorch, "num_procs", lambda: procs)
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: now.__setitem__(0, n))
    for _ in range(3):
        setup_pytorch_for_mpi()
        assert now == [share]


# --- two ranks ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_M03_M04_M05_M06_collectives_of_two_ranks():
    mpirun(
        """
        mpi_fork(3)                                                 # does nothing inside of a world
        assert num_procs() == 2
        assert mpi_sum(2**53 - rank) == float(2**54 - 1)            # doubles stay doubles
        assert mpi_sum(np.float32(rank)).dtype == np.float32
        assert mpi_avg(rank).item() == 0.5 and isinstance(mpi_avg(rank), np.float64)
        assert mpi_avg(np.full((2, 2), rank)[:, :1]).tolist() == [[0.5], [0.5]]
        x = np.full(3, float(rank))
        broadcast(x, root=1)
        assert x.tolist() == [1, 1, 1]
        out = np.zeros(3)
        allreduce(x, out)
        assert out.tolist() == [2, 2, 2]

        everything = np.arange(7.0) ** 2
        mine = [everything[:4].reshape(2, 2), everything[4:]][rank]
        expected = [everything.mean(), everything.std(), 0, 36]
        assert np.allclose(mpi_statistics_scalar(mine, True), expected, rtol=1e-15)
        assert np.allclose(mpi_statistics_scalar([everything, []][rank], True), expected, rtol=1e-15)
        assert np.isnan(mpi_statistics_scalar([], True)).all()
        assert mpi_avg(1) == 1                                      # the ranks are still in step
        """
    )


@pytest.mark.slow
def test_M08_M09_M11_pytorch_on_two_ranks():
    mpirun(
        """
        import torch
        from spinup.utils import mpi_pytorch, mpi_tools

        calls = []
        mpi_pytorch.allreduce = lambda *args: (calls.append("reduce"), mpi_tools.allreduce(*args))
        mpi_pytorch.broadcast = lambda *args: (calls.append("broadcast"), mpi_tools.broadcast(*args))

        net = torch.nn.Module()
        net.a, net.b, net.c = (torch.nn.Parameter(torch.full((2, 2), float(rank))) for _ in "abc")
        net.scale = torch.nn.Parameter(torch.tensor(1.0 + rank, dtype=torch.float64))
        net.norm = torch.nn.BatchNorm1d(2)
        net.norm(torch.randn(4, 2) + rank)
        net.register_buffer("mask", torch.tensor([True, rank == 0]))
        net.short = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16) * rank)

        mpi_pytorch.sync_params(net)
        for tensor in net.state_dict().values():
            mine = tensor.double().numpy()
            assert np.array_equal(mpi_avg(mine), mine)
        assert not net.a.any() and net.scale == 1 and net.mask.all() and not net.short.any()
        assert len(calls) == 5          # one for each of float32, float64, int64, bool, bfloat16

        calls.clear()
        net.a.grad = grad = torch.full((2, 2), 1.0 + rank)
        if rank == 0:
            net.b.grad = torch.ones(2, 2)
        net.scale.grad = torch.tensor(0.1 * (1 + rank), dtype=torch.float64)
        mpi_pytorch.mpi_avg_grads(net)
        assert calls == ["reduce"]
        assert net.a.grad is grad and grad.eq(1.5).all()
        assert net.b.grad.eq(0.5).all()
        assert net.c.grad is None
        assert abs(net.scale.grad.item() - 0.15) < 1e-15
        mpi_pytorch.mpi_avg_grads(torch.nn.ReLU())
        """
    )


@pytest.mark.slow
def test_L09_L10_logger_on_two_ranks(tmp_path):
    """Only rank 0 stores A, only rank 1 stores B, nobody stores C: the ranks stay in step, rank 0 writes."""
    lines = mpirun(
        f"""
        from spinup.utils.logx import EpochLogger
        logger = EpochLogger({str(tmp_path)!r} + "/run", exp_name="demo", quiet=True)
        assert (logger.output_file is None) == (rank == 1)
        logger.register("C")
        for epoch in range(2):
            if epoch == 0:
                logger.store(**[dict(A=1, Both=1), dict(B=np.array([2, 4]), Both=3)][rank])
                assert logger.get_stats("Both") == (2, 1)
            logger.log_tabular("Epoch", epoch)
            for key in "A", "B", "C", "Both":
                logger.log_tabular(key, with_min_and_max=key == "B")
            try:
                logger.log_tabular("D")
            except KeyError:
                pass
            else:
                raise AssertionError
            logger.dump_tabular()
        print(rank, "done")
        """
    )
    assert lines == ["0 done", "1 done"]
    assert os.listdir(tmp_path / "run") == ["progress.txt"]
    header, first, second = (tmp_path / "run" / "progress.txt").read_text().splitlines()
    expected = "Epoch AverageA StdA AverageB StdB MaxB MinB AverageC StdC AverageBoth StdBoth"
    assert header.replace("\t", " ") == expected
    assert first.replace("\t", " ") == "0 1.0 0.0 3.0 1.0 4.0 2.0 nan nan 2.0 1.0"
    assert second.split("\t") == ["1"] + ["nan"] * 10


FORK = """
import sys
from spinup.utils.mpi_tools import *
mpi_fork(2, mpirun_args=["--oversubscribe"])
"""


@pytest.mark.slow
def test_one_failing_rank_stops_all():
    start = time.perf_counter()
    done = run(sys.executable, "-c", FORK + "mpi_sum(1 / proc_id())")
    assert time.perf_counter() - start < 20
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr and "MPI rank 0 of 2 failed" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", backends.NAMES)
@pytest.mark.parametrize("algo", backends.ON_POLICY)
def test_an_update_on_two_ranks_is_one_update_on_all_their_data(backend, algo, tmp_path):
    """Gradients, KL divergences and losses are averages over the ranks."""
    mpirun(
        f"""
        import sys
        sys.path.insert(0, {TESTS!r})
        import test_mpi
        subject, data = test_mpi.small_problem({backend!r}, {algo!r})
        start = subject.params()
        columns = subject.update([{{key: x[16 * rank : 16 * rank + 16] for key, x in data.items()}}])
        np.savez({str(tmp_path)!r} + f"/{{rank}}", **subject.params(), KL=columns["KL"])
        """
    )
    subject, data = small_problem(backend, algo)
    columns = subject.update([data])
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        for name, expected in subject.params().items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    subject.close()
    assert abs(columns["KL"]) > 1e-4


def small_problem(backend, algo):
    """An algorithm with small networks, the same on every rank, and a rollout of 32 steps; its halves differ much."""
    hyper = dict(ac_kwargs=dict(hidden_sizes=(4, 3)), vf_lr=1e-2, train_v_iters=3)
    hyper |= dict(
        vpg=dict(pi_lr=1e-2), ppo=dict(pi_lr=1e-2, train_pi_iters=8, target_kl=0.005), trpo=dict(cg_iters=60)
    )[algo]
    box = Box(-np.inf, np.inf, (3,)), Box(-1, 1, (2,))
    subject, rng = backends.get(backend).make(algo, *box, **hyper), np.random.default_rng(0)
    subject.load({name: 0.5 * rng.standard_normal(p.shape) for name, p in subject.params().items()})
    data = dict(obs=rng.standard_normal((32, 3)), act=rng.standard_normal((32, 2)))
    _, logp = subject.agent.value_and_logp(*map(backends.float32, data.values()))
    data |= dict(adv=rng.standard_normal(32), ret=rng.standard_normal(32), logp=logp)
    data["adv"][:16] *= 5
    return subject, data


@pytest.mark.slow
@pytest.mark.parametrize("backend", backends.NAMES)
def test_training_on_two_ranks(backend, tmp_path):
    """The ranks see different episodes and have the same networks at all times; one log is written."""
    lines = mpirun(
        f"""
        import random, sys
        sys.path.insert(0, {TESTS!r})
        import backends
        from helpers import Scripted, short
        env = Scripted((7, "terminated"))
        logger_kwargs = dict(output_dir={str(tmp_path / "run")!r}, quiet=True)
        arguments = short("ppo", normalize_obs=True, logger_kwargs=logger_kwargs)
        trained = backends.get({backend!r}).train("ppo", lambda: env, **arguments)
        total = sum(p.sum() for p in trained.params().values())
        print(f"result:{{total!r}}:{{env.seeds[0]}}:{{random.random()}}:{{env.actions[0]}}")
        """
    )
    first, second = (line.split(":")[1:] for line in lines if line.startswith("result:"))
    assert first[0] == second[0]
    assert all(x != y for x, y in zip(first[1:], second[1:], strict=True))
    assert len((tmp_path / "run" / "progress.txt").read_text().splitlines()) == 3


@pytest.mark.slow
def test_statistics_of_observations_are_those_of_all_ranks():
    mpirun(
        """
        from spinup.training.normalizer import merge
        obs = np.random.default_rng(0).normal(3, 2, (2, 2, 10, 4))     # update, rank, step, dimension
        count, mean, std = merge(0, np.zeros(4), np.ones(4), obs[0, rank])
        count, mean, std = merge(count, mean, std, obs[1, rank])
        everything = obs.reshape(-1, 4)
        assert count == 40
        assert np.allclose(mean, everything.mean(0)) and np.allclose(std, everything.std(0))
        """
    )


@pytest.mark.slow
def test_a_bad_number_on_one_rank_stops_all_from_the_command_line(tmp_path):
    """The others would wait for it for ever."""
    (tmp_path / "bad_env.py").write_text(BAD_ENV)
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    command = [shutil.which("mpirun", path=places), "--oversubscribe", "-np", "2", sys.executable, "-m", "spinup.run"]
    start = time.perf_counter()
    done = run(
        *command,
        *("ppo", "--env", "bad_env:Bad-v0", "--data_dir", str(tmp_path), "--steps_per_epoch", "40"),
        PYTHONPATH=os.pathsep.join([ROOT, str(tmp_path)]),
    )
    assert time.perf_counter() - start < 20
    assert done.returncode != 0 and "reward nan" in done.stderr


BAD_ENV = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from spinup.utils.mpi_tools import proc_id

class Bad(gym.Env):
    observation_space, action_space, t = spaces.Box(-1, 1, (2,)), spaces.Discrete(2), 0
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), np.nan if proc_id() == 1 and self.t == 10 else 0.0, False, False, {}

gym.register("Bad-v0", Bad)
"""


# --- the launcher -------------------------------------------------------------------------------------------


@pytest.fixture
def launched(monkeypatch):
    """What mpi_fork would run, as a list of one (command, environment)."""
    calls = []
    monkeypatch.setattr(subprocess, "check_call", lambda command, env: calls.append((command, env)))
    return calls


def fork(*args, **kwargs):
    with pytest.raises(SystemExit) as caught:
        mpi_fork(*args, **kwargs)
    assert not caught.value.code


def test_M02_launcher_command(launched, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys, "argv", ["train.py", "--cpu", "4"])
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    fork(4, bind_to_core=True, mpirun_args=["--oversubscribe"])
    fork(2)
    (bound, env), (plain, _) = launched
    launcher, *arguments = bound
    assert os.path.basename(launcher) == "mpirun"
    program = [sys.executable, "train.py", "--cpu", "4"]
    assert arguments == ["-np", "4", "--bind-to", "core", "--oversubscribe", *program]
    assert plain[1:] == ["-np", "2", *program]
    assert env["IN_MPI"] == env["MKL_NUM_THREADS"] == env["OMP_NUM_THREADS"] == "1"
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert env["PATH"] == os.environ["PATH"] and "IN_MPI" not in os.environ


@pytest.mark.parametrize(
    "name, argv, repeated",
    [
        ("package.module", ["/x/package/module.py", "1"], ["-m", "package.module", "1"]),
        ("package.__main__", ["/x/package/__main__.py", "1"], ["-m", "package", "1"]),
        ("__main__", ["some.zip", "1"], ["some.zip", "1"]),
        (None, ["-c", "1"], ["-u", "-c", "code", "1"]),
    ],
)
def test_M02_modules_are_started_as_modules(launched, monkeypatch, name, argv, repeated):
    class Spec:
        pass

    Spec.name = name
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", Spec if name else None)
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", "-c", "code", "1"])
    fork(2)
    assert launched[0][0][3:] == [sys.executable, *repeated]


def test_M03_existing_worlds_are_used_as_they_are(launched, monkeypatch):
    monkeypatch.setattr(mpi_tools, "num_procs", lambda: 2)
    mpi_fork(4)
    monkeypatch.setattr(mpi_tools, "num_procs", lambda: 1)
    monkeypatch.setenv("IN_MPI", "1")
    mpi_fork(4)
    assert not launched


@pytest.mark.parametrize("missing", ["mpi4py", "mpirun"])
def test_M01_mpi_fork_names_what_is_missing(launched, monkeypatch, request, missing):
    if missing == "mpi4py":
        request.getfixturevalue("no_mpi4py")
    else:
        monkeypatch.setattr(shutil, "which", lambda *args, **kwargs: None)
    with pytest.raises(RuntimeError, match=rf'^2 processes .* {missing} is missing: pip install "spinup\[mpi\]"$'):
        mpi_fork(2)
    assert not launched


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_M02_mpi_fork_runs_the_program_on_all_ranks(tmp_path, how):
    code = FORK + "print(f'rank {proc_id()} of {num_procs()}: {mpi_sum(1)} {sys.argv[1:]} {__package__}')"
    (tmp_path / "package").mkdir()
    file = tmp_path / "package" / "module.py"
    file.write_text(code)
    program = {"script": [str(file)], "module": ["-m", "package.module"], "code": ["-c", code]}[how]
    done = run(sys.executable, *program, "an argument", PYTHONPATH=os.pathsep.join([ROOT, str(tmp_path)]))
    assert done.returncode == 0, done.stderr
    package = "package" if how == "module" else "None"
    expected = [f"rank {rank} of 2: 2.0 ['an argument'] {package}" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == expected


@pytest.mark.slow
def test_failing_workers_make_mpi_fork_fail():
    done = run(sys.executable, "-c", FORK + "raise SystemExit(3)")
    assert done.returncode != 0 and "CalledProcessError" in done.stderr
