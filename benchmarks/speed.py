"""Training speed of spinup against Stable-Baselines3 and SBX: same task, networks, batches, buffer and schedule.

    python benchmarks/speed.py                        # everything, about 25 minutes on two cores
    python benchmarks/speed.py --algos ppo sac --repeats 3 --json /tmp/speed.json

Each measurement is a process of its own that trains on one environment and reads the clock inside that environment:
steps per second between two of its steps, so imports, compilation and warm-up do not count, and updates do.
Contenders take turns, several times over; absolute figures depend on the machine, the ratios in the last columns
much less. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ON_POLICY, OFF_POLICY = ("vpg", "trpo", "ppo"), ("ddpg", "td3", "sac")
HIDDEN = {**dict.fromkeys(ON_POLICY, (64, 64)), **dict.fromkeys(OFF_POLICY, (256, 256))}  # the defaults of spinup
STEPS_PER_EPOCH, ITERATIONS, EPOCHS = 4000, 80, 3  # on-policy: rollout, full-batch gradient steps, epochs measured
WARM_UP, MEASURED, BATCH = 1000, 2000, 100  # off-policy: random steps, steps with updates, minibatch
SCHEDULES = (50, 1)  # off-policy: an update per step, in blocks of 50 as spinup does by default, or after each step

OURS, PEERS = ["spinup-pytorch", "spinup-jax"], ["sb3", "sbx"]
# What each row is compared with: Stable-Baselines3 has no VPG, its TRPO is in sb3-contrib, and SBX has neither.
PEER_ALGO = {"vpg": "ppo"}
CONTENDERS = {"vpg": [*OURS, "sb3"], "trpo": [*OURS, "sb3"]}


# -- One measurement, in a process of its own ---------------------------------------------------------------------


class Clock:
    """Reads the time when the environment takes its `first` and its `last` step."""

    def __init__(self, first, last):
        self.marks, self.steps, self.times = (first, last), 0, []

    def wrap(self, env):
        inner_step = env.step

        def step(action):
            if self.steps in self.marks:
                self.times.append(time.perf_counter())
            self.steps += 1
            return inner_step(action)

        env.step = step
        return env

    def rate(self):
        return (self.marks[1] - self.marks[0]) / (self.times[1] - self.times[0])


def window(algo):
    """First and last step of the measurement, and how many steps to train: the last one comes after an update."""
    if algo in ON_POLICY:
        return STEPS_PER_EPOCH, (1 + EPOCHS) * STEPS_PER_EPOCH, (2 + EPOCHS) * STEPS_PER_EPOCH
    return WARM_UP + 2 * 50, WARM_UP + 2 * 50 + MEASURED, WARM_UP + 2 * 50 + MEASURED + 50


def run_spinup(algo, backend, env_name, schedule, num_envs, with_shares):
    import gymnasium as gym

    import spinup

    first, last, total = window(algo)
    clock = Clock(first // num_envs, last // num_envs)
    made = []

    def env_fn():  # the clock belongs to the first environment
        env = gym.make(env_name)
        made.append(env)
        return clock.wrap(env) if len(made) == 1 else env

    kwargs = dict(num_envs=num_envs, ac_kwargs=dict(hidden_sizes=HIDDEN[algo]))
    if algo in ON_POLICY:
        kwargs |= dict(steps_per_epoch=STEPS_PER_EPOCH, epochs=total // STEPS_PER_EPOCH, train_v_iters=ITERATIONS)
        if algo == "ppo":
            kwargs |= dict(train_pi_iters=ITERATIONS, target_kl=None)
    else:
        kwargs |= dict(steps_per_epoch=total, epochs=1, start_steps=WARM_UP, update_after=WARM_UP)
        kwargs |= dict(update_every=schedule, batch_size=BATCH, num_test_episodes=0)
    shares = TimeShares(clock) if with_shares else None
    with tempfile.TemporaryDirectory() as output_dir:
        getattr(spinup, f"{algo}_{backend}")(env_fn, logger_kwargs=dict(output_dir=output_dir), **kwargs)
    return dict(rate=clock.rate() * num_envs, shares=shares.result() if shares else None)


class TimeShares:
    """Where the time between the two marks of the clock goes. Wraps the few methods that the loops call."""

    def __init__(self, clock):
        from spinup.training import acting, envs, loop, off_policy, on_policy
        from spinup.utils import logx

        self.clock, self.seconds = clock, dict.fromkeys(("env", "acting", "update", "logging"), 0.0)
        for policy in (acting.GaussianPolicy, acting.DeterministicPolicy, acting.SquashedGaussianPolicy):
            self._time(policy, "sample", "acting")
            self._time(policy, "mode", "acting")
        self._time(envs.Envs, "step", "env")
        self._time(envs.Envs, "restart", "env")
        self._time(on_policy.OnPolicyLoop, "learn", "update")
        self._time(off_policy.OffPolicyLoop, "update", "update")
        self._time(logx.EpochLogger, "dump_tabular", "logging")
        self._time(loop.Loop, "save", "logging")

    def _time(self, cls, method, part):
        inner = getattr(cls, method)

        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                if len(self.clock.times) == 1:
                    self.seconds[part] += time.perf_counter() - start

        setattr(cls, method, timed)

    def result(self):
        begin, end = self.clock.times
        shares = {part: seconds / (end - begin) for part, seconds in self.seconds.items()}
        return {**shares, "rest": 1 - sum(shares.values())}


def run_peer(library, algo, env_name, schedule):
    import gymnasium as gym

    algo = PEER_ALGO.get(algo, algo)
    first, last, total = window(algo)
    clock = Clock(first, last)
    env = clock.wrap(gym.make(env_name))
    hidden = list(HIDDEN[algo])
    if library == "sbx":
        import sbx as models
    elif algo == "trpo":
        import sb3_contrib as models
    else:
        import stable_baselines3 as models
    common = dict(policy="MlpPolicy", env=env, gamma=0.99, seed=0, verbose=0)
    if library == "sb3":
        common |= dict(device="cpu")
    if algo in ON_POLICY:
        kwargs = dict(n_steps=STEPS_PER_EPOCH, batch_size=STEPS_PER_EPOCH, gae_lambda=0.97)
        kwargs |= dict(policy_kwargs=dict(net_arch=dict(pi=hidden, vf=hidden)))
        if algo == "ppo":
            kwargs |= dict(n_epochs=ITERATIONS, learning_rate=3e-4, clip_range=0.2)
        else:
            kwargs |= dict(n_critic_updates=ITERATIONS, learning_rate=1e-3, cg_damping=0.1, cg_max_steps=10)
            kwargs |= dict(line_search_max_iter=10, sub_sampling_factor=1)
    else:
        kwargs = dict(learning_rate=1e-3, buffer_size=1_000_000, learning_starts=WARM_UP, batch_size=BATCH, tau=0.005)
        kwargs |= dict(train_freq=schedule, gradient_steps=schedule, policy_kwargs=dict(net_arch=hidden))
        if algo == "sac":
            kwargs |= dict(ent_coef=0.2)
        else:
            from stable_baselines3.common.noise import NormalActionNoise

            noise = 0.1 * env.action_space.high
            kwargs |= dict(action_noise=NormalActionNoise(mean=0 * noise, sigma=noise))
    getattr(models, algo.upper())(**common, **kwargs).learn(total)
    return dict(rate=clock.rate(), shares=None)


def measure(args):
    library, _, backend = args.worker.partition("-")
    algo = args.algos[0]
    if library == "roofline":
        result = roofline()
    elif library == "spinup":
        result = run_spinup(algo, backend, args.env, args.schedule, args.num_envs, args.shares)
    else:
        result = run_peer(library, algo, args.env, args.schedule)
    print("RESULT " + json.dumps(result))


# -- How near to the machine's limit ------------------------------------------------------------------------------

OBS_DIM, ACT_DIM, WIDTH = 17, 6, 256  # HalfCheetah-v5, and the hidden layers


def sac_update_flops():
    """Floating-point operations of the matrix products in one update of SAC, two for each multiplication and addition.

    Products with a weight matrix: forward; backward to the weights; backward to the layer's input, which is not
    needed for observations, and stops at the action in the critics.
    """
    hidden, pi_in, pi_out = WIDTH * WIDTH, OBS_DIM * WIDTH, 2 * WIDTH * ACT_DIM
    q_in, q_act_in, q_out = (OBS_DIM + ACT_DIM) * WIDTH, ACT_DIM * WIDTH, WIDTH
    pi, q = pi_in + hidden + pi_out, q_in + hidden + q_out
    loss_q = pi + 2 * q + 2 * (q + q + hidden + q_out)  # a' ~ pi, targets; critics forward and backward
    loss_pi = pi + pi + hidden + pi_out + 2 * (q + hidden + q_out + q_act_in)
    return 2 * BATCH * (loss_q + loss_pi)


def roofline():
    """Updates per second of SAC alone, and the speed of matrix products of its size, both as XLA does them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from gymnasium.spaces import Box

    from spinup.algos.jax.learn import OffPolicyAgent
    from spinup.algos.jax.nets import SACActorCritic
    from spinup.algos.jax.sac.sac import SAC
    from spinup.training.loop import default_threads

    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
    config = dict(actor_critic=SACActorCritic, ac_kwargs={}, seed=0, device="cpu", threads=default_threads())
    config |= dict(gamma=0.99, polyak=0.995, lr=1e-3, alpha=0.2)
    agent = OffPolicyAgent(SAC, config, Box(-np.inf, np.inf, (OBS_DIM,)), Box(-1, 1, (ACT_DIM,)))
    batches = dict(obs=normal(50, BATCH, OBS_DIM), act=np.tanh(normal(50, BATCH, ACT_DIM)), rew=normal(50, BATCH))
    batches |= dict(obs2=normal(50, BATCH, OBS_DIM), done=np.zeros((50, BATCH), np.float32))
    update = best_time(lambda: agent.update_many(batches)) / 50

    @jax.jit
    def products(x, weights):
        return jax.lax.scan(lambda x, w: (x @ w, None), x, weights)[0]

    x, weights = jnp.asarray(normal(BATCH, WIDTH)), jnp.asarray(normal(500, WIDTH, WIDTH) / 16)
    product = best_time(lambda: products(x, weights).block_until_ready()) / 500
    peak = 2 * BATCH * WIDTH * WIDTH / product
    return dict(
        threads=config["threads"],
        flops_per_update=sac_update_flops(),
        updates_per_second=1 / update,
        reached=sac_update_flops() / update,
        peak=peak,
        share=sac_update_flops() / update / peak,
    )


def best_time(function, repeats=20):
    """Seconds of one call, the best of several: the limit is what the machine can do undisturbed."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


# -- From the command to the first row of the log -----------------------------------------------------------------


def first_epoch(args):
    """Seconds of a whole command, in which SAC logs one epoch with ten blocks of updates, less its environment steps.

    What remains is Python's start, imports, compilation, and those updates.
    """
    seconds = []
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as output_dir:
            command = [sys.executable, "-m", "spinup.run", "sac_jax", "--env", args.env, "--data_dir", output_dir]
            command += ["--epochs", "1", "--steps_per_epoch", "1500", "--start_steps", "1000", "--update_after", "1000"]
            start = time.perf_counter()
            subprocess.run([*command, "--num_test_episodes", "1"], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
    steps = 1500 + 1000  # and the evaluation
    environment = steps * env_step_seconds(args.env)
    return dict(seconds=statistics.median(seconds) - environment, environment_steps=environment)


def env_step_seconds(env_name):
    import gymnasium as gym

    env = gym.make(env_name)
    env.reset(seed=0)
    a = env.action_space.sample()
    return best_time(lambda: [env.step(a) for _ in range(500)]) / 500


# -- The comparison -----------------------------------------------------------------------------------------------


def run_worker(contender, algo, args, schedule=50, num_envs=1, shares=False):
    command = [sys.executable, __file__, "--worker", contender, "--algos", algo, "--env", args.env]
    command += ["--schedule", str(schedule), "--num-envs", str(num_envs), *(["--shares"] if shares else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, JAX_PLATFORMS="cpu"))
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{contender} {algo} failed:\n{done.stderr[-3000:]}")
    return json.loads(lines[0].removeprefix("RESULT "))


def compare(args):
    results = []
    for algo in args.algos:
        for schedule in SCHEDULES if algo in OFF_POLICY else (None,):
            results += compare_case(algo, schedule, args)
    print_table(results)
    return results


def compare_case(algo, schedule, args):
    """All contenders in turn, and each again; PPO in JAX with 8 environments as well."""
    contenders = [name for name in CONTENDERS.get(algo, [*OURS, *PEERS]) if name in args.contenders]
    cases = [(name, 1) for name in contenders] + ([("spinup-jax", 8)] if algo == "ppo" else [])
    rates = {case: [] for case in cases}
    for repeat in range(args.repeats):
        for (name, num_envs), measured in rates.items():
            measured.append(run_worker(name, algo, args, schedule or 50, num_envs)["rate"])
            print(
                f"  {algo} {schedule or ''} {name} {num_envs} {repeat + 1}/{args.repeats}: {measured[-1]:.0f} steps/s"
            )
    medians = {case: statistics.median(measured) for case, measured in rates.items()}
    peers = [medians[name, 1] for name in PEERS if (name, 1) in medians]
    rows = []
    for (name, num_envs), measured in rates.items():
        median = medians[name, num_envs]
        row = dict(algo=algo, schedule=schedule, contender=name, num_envs=num_envs, median=median, rates=measured)
        if peers:
            row |= dict(times_sb3=median / medians["sb3", 1], times_fastest_peer=median / max(peers))
        if name in OURS:
            row["shares"] = run_worker(name, algo, args, schedule or 50, num_envs, shares=True)["shares"]
        rows.append(row)
    print_table(rows)
    return rows


def print_table(rows):
    print("\n| algorithm   | contender      | envs | steps/s |   lowest - highest | x SB3 | x fastest peer |", end="")
    print("  env | acting | update | logging |")
    print("|-------------|----------------|-----:|--------:|-------------------:|------:|---------------:|", end="")
    print("-----:|-------:|-------:|--------:|")
    for r in rows:
        algo = f"{r['algo']}, {r['schedule']}" if r["schedule"] else r["algo"]
        name = f"sb3 ({PEER_ALGO[r['algo']]})" if r["contender"] == "sb3" and r["algo"] in PEER_ALGO else r["contender"]
        spread = f"{min(r['rates']):.0f} - {max(r['rates']):.0f}"
        ratios = f"{r.get('times_sb3', 0):5.2f} | {r.get('times_fastest_peer', 0):14.2f}"
        shares = r.get("shares")
        parts = [f"{shares[part]:.0%}" if shares else "" for part in ("env", "acting", "update", "logging")]
        print(f"| {algo:11} | {name:14} | {r['num_envs']:4} | {r['median']:7.0f} | {spread:>18} | {ratios} |", end="")
        print(f" {parts[0]:>4} | {parts[1]:>6} | {parts[2]:>6} | {parts[3]:>7} |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    algos = [*ON_POLICY, *OFF_POLICY]
    parser.add_argument("--algos", nargs="+", default=algos, choices=algos)
    parser.add_argument("--contenders", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/speed.json"), help="where the figures go")
    for hidden in ("--worker", "--schedule", "--num-envs"):
        parser.add_argument(hidden, help=argparse.SUPPRESS, type=str if hidden == "--worker" else int)
    parser.add_argument("--shares", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return measure(args)
    machine = dict(processor=processor(), cores=os.cpu_count())
    names = ("torch", "jax", "gymnasium", "mujoco", "numpy", "stable-baselines3", "sb3-contrib", "sbx-rl")
    versions = {name: version(name) for name in names}
    limit = run_worker("roofline", "sac", args)
    print(
        f"One update of SAC takes {limit['flops_per_update'] / 1e6:.0f} million floating-point operations in matrix"
        f" products;\n{limit['updates_per_second']:.0f} updates/s are {limit['reached'] / 1e9:.0f} GFLOP/s, products"
        f" of this size alone reach {limit['peak'] / 1e9:.0f} GFLOP/s: {limit['share']:.0%} of the limit"
        f" ({limit['threads']} threads)."
    )
    start = first_epoch(args)
    print(f"From the command to the first logged epoch of SAC: {start['seconds']:.1f} s on top of environment steps.")
    results = compare(args)
    settings = dict(env=args.env, repeats=args.repeats)
    figures = dict(machine=machine, versions=versions, settings=settings, roofline=limit, first_epoch=start)
    args.json.write_text(json.dumps(figures | dict(results=results), indent=1))
    print(f"\nfigures written to {args.json}")


def processor():
    """As the system calls it."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(": ")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
