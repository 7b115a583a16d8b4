"""Training speed of spinup against Stable-Baselines3 and SBX: same task, networks, batches, buffer and schedule.

    python benchmarks/speed.py                        # everything, about half an hour on two cores
    python benchmarks/speed.py --algos ppo sac --repeats 3
    python benchmarks/speed.py --schedule 1           # off-policy: one update after each step, not blocks of 50

Each measurement is a process of its own that trains on one environment and reads the clock inside that environment:
steps per second between two of its steps, so imports, compilation and warm-up do not count, and updates do.
Contenders take turns, several times over; absolute figures depend on the machine, the ratios in the last column
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

# What each row is compared with: Stable-Baselines3 has no VPG, and its TRPO is in sb3-contrib.
PEER_ALGO = {"vpg": "ppo"}
CONTENDERS = {
    "vpg": ["spinup-pytorch", "sb3"],
    "trpo": ["spinup-pytorch", "sb3"],
    "ppo": ["spinup-pytorch", "sb3", "sbx"],
    **{algo: ["spinup-pytorch", "sb3", "sbx"] for algo in OFF_POLICY},
}


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


def run_spinup(algo, backend, env_name, schedule, num_envs):
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
    shares = TimeShares()
    with tempfile.TemporaryDirectory() as output_dir:
        getattr(spinup, f"{algo}_{backend}")(env_fn, logger_kwargs=dict(output_dir=output_dir), **kwargs)
    return dict(rate=clock.rate() * num_envs, shares=shares.result())


class TimeShares:
    """Where the time of a run goes. Wraps the few methods that the loops call; not part of the package."""

    def __init__(self):
        from spinup.training import acting, envs, loop, off_policy, on_policy
        from spinup.utils import logx

        self.seconds = dict.fromkeys(("total", "env", "acting", "update", "logging"), 0.0)
        for policy in (acting.GaussianPolicy, acting.DeterministicPolicy, acting.SquashedGaussianPolicy):
            self._time(policy, "sample", "acting")
            self._time(policy, "mode", "acting")
        self._time(envs.Envs, "step", "env")
        self._time(envs.Envs, "restart", "env")
        self._time(on_policy.OnPolicyLoop, "train_epochs", "total")
        self._time(on_policy.OnPolicyLoop, "learn", "update")
        self._time(off_policy.OffPolicyLoop, "train_epochs", "total")
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
                self.seconds[part] += time.perf_counter() - start

        setattr(cls, method, timed)

    def result(self):
        total = self.seconds.pop("total")
        shares = {part: seconds / total for part, seconds in self.seconds.items()}
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
    if library == "spinup":
        result = run_spinup(algo, backend, args.env, args.schedule, args.num_envs)
    else:
        result = run_peer(library, algo, args.env, args.schedule)
    print("RESULT " + json.dumps(result))


# -- The comparison -----------------------------------------------------------------------------------------------


def run_worker(contender, algo, args):
    command = [sys.executable, __file__, "--worker", contender, "--algos", algo, "--env", args.env]
    command += ["--schedule", str(args.schedule), "--num-envs", str(args.num_envs)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, JAX_PLATFORMS="cpu"))
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(f"{contender} {algo} failed:\n{done.stderr[-3000:]}")
    return json.loads(lines[0].removeprefix("RESULT "))


def compare(args):
    results = []
    for algo in args.algos:
        runs = {contender: [] for contender in CONTENDERS[algo] if contender in args.contenders}
        for repeat in range(args.repeats):
            for contender in runs:
                runs[contender].append(run_worker(contender, algo, args))
                print(f"  {algo} {contender} {repeat + 1}/{args.repeats}: {runs[contender][-1]['rate']:.0f} steps/s")
        results += [summary(algo, contender, runs[contender]) for contender in runs]
        base = next((r["median"] for r in results if r["algo"] == algo and r["contender"] == "sb3"), None)
        for r in results:
            if r["algo"] == algo:
                r["ratio_to_sb3"] = r["median"] / base if base else None
        print_table([r for r in results if r["algo"] == algo])
    print_table(results)
    print_shares(results)
    return results


def summary(algo, contender, runs):
    rates = sorted(run["rate"] for run in runs)
    return dict(
        algo=algo,
        contender=contender,
        median=statistics.median(rates),
        low=rates[0],
        high=rates[-1],
        rates=rates,
        shares=runs[-1]["shares"],
    )


def print_table(results):
    print(f"\n| {'algorithm':9} | {'contender':14} | steps/s | {'lowest - highest':>16} | times SB3 |")
    print(f"|{'-' * 11}|{'-' * 16}|{'-' * 8}:|{'-' * 17}:|{'-' * 10}:|")
    for r in results:
        spread = f"{r['low']:.0f} - {r['high']:.0f}"
        ratio = f"{r['ratio_to_sb3']:.2f}" if r["ratio_to_sb3"] else ""
        name = f"sb3 ({PEER_ALGO[r['algo']]})" if r["contender"] == "sb3" and r["algo"] in PEER_ALGO else r["contender"]
        print(f"| {r['algo']:9} | {name:14} | {r['median']:7.0f} | {spread:>16} | {ratio:>9} |")
    print(flush=True)


def print_shares(results):
    """Of the time from the first step to the last, warm-up included."""
    rows = [r for r in results if r["shares"]]
    if rows:
        parts = list(rows[0]["shares"])
        print("| share of time            | " + " | ".join(f"{part:>7}" for part in parts) + " |")
        print("|--------------------------|" + "|".join("-" * 8 + ":" for _ in parts) + "|")
        for r in rows:
            cells = " | ".join(f"{r['shares'][part]:7.1%}" for part in parts)
            print(f"| {r['algo'] + ' ' + r['contender']:24} | {cells} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algos", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--contenders", nargs="+", default=["spinup-pytorch", "sb3", "sbx"])
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--schedule", type=int, default=50, help="off-policy: steps, and updates, per block")
    parser.add_argument("--num-envs", type=int, default=1, help="of spinup's runs")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/speed.json"), help="where the figures go")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return measure(args)
    results = compare(args)
    machine = dict(processor=platform.processor() or platform.machine(), cores=os.cpu_count())
    names = ("torch", "gymnasium", "mujoco", "numpy", "stable-baselines3", "sbx-rl", "jax")
    settings = dict(env=args.env, schedule=args.schedule, num_envs=args.num_envs, repeats=args.repeats)
    versions = {name: version(name) for name in names}
    args.json.write_text(
        json.dumps(dict(machine=machine, versions=versions, settings=settings, results=results), indent=1)
    )
    print(f"\nfigures written to {args.json}")


if __name__ == "__main__":
    main()
