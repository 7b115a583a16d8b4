"""What the environment interface costs on top of the environment itself, in microseconds per environment step.

python benchmarks/envs.py --env HalfCheetah-v5 CartPole-v1 --num-envs 1 8
"""

import argparse
import statistics
import time

import gymnasium as gym
import numpy as np

from spinup.training.envs import Envs, env_fn_from_name

STEPS, REPEATS = 4000, 7


def direct(name, n):
    env = gym.make(name)
    env.reset(seed=0)
    a = env.action_space.sample()

    def run():
        for _ in range(STEPS):
            *_, terminated, truncated, _ = env.step(a)
            if terminated or truncated:
                env.reset()

    return run


def ours(name, n):
    envs = Envs(env_fn_from_name(name), n, np.random.default_rng(0))
    envs.reset()
    a = np.stack([envs.action_space.sample()] * n)

    def run():
        for _ in range(STEPS // n):
            *_, terminated, truncated = envs.step(a)
            done = terminated | truncated
            if done.any():
                envs.restart(done)

    return run


def gymnasium_sync(name, n):
    envs = gym.make_vec(name, num_envs=n, vectorization_mode="sync")
    envs.reset(seed=0)
    a = envs.action_space.sample()

    def run():
        for _ in range(STEPS // n):
            envs.step(a)

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["HalfCheetah-v5", "CartPole-v1"])
    parser.add_argument("--num-envs", nargs="+", type=int, default=[1, 8])
    args = parser.parse_args()
    print("| environment        | n | direct | spinup  | SyncVectorEnv |")
    print("|--------------------|--:|-------:|--------:|--------------:|")
    for name in args.env:
        for n in args.num_envs:
            runs = [make(name, n) for make in (direct, ours, gymnasium_sync)]
            times = [[] for _ in runs]
            for _ in range(REPEATS):  # in turn, so that a slow moment hits all of them
                for run, seconds in zip(runs, times, strict=True):
                    start = time.perf_counter()
                    run()
                    seconds.append((time.perf_counter() - start) / STEPS * 1e6)
            base, us, sync = map(statistics.median, times)
            print(f"| {name:18} | {n} | {base:6.1f} | {us - base:+7.1f} | {sync - base:+13.1f} |")


if __name__ == "__main__":
    main()
