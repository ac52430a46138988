"""Tasks that are played at once, through Ray: the peer of `cargo bench -p pl-cluster`.

Workers are actors (a process each, as Ray has them), tasks have 2,000 bytes and results 20,000. `direct` calls the actors
from the driver, `queues` hands out tasks by one `ray.util.queue.Queue` and takes results from another. Nothing is
written to a disk, and nothing survives the driver. Prints rows of a table.

    python cluster_ray.py --workers 10 --tasks 10000
"""

import argparse
import time

import psutil
import ray
from ray.util.queue import Queue

TASK, RESULT = 2_000, 20_000


@ray.remote(num_cpus=0)
class Worker:
    def play(self, task):
        assert len(task) == TASK
        return bytes(RESULT)

    def play_all(self, tasks, results):
        while (task := tasks.get()) is not None:
            results.put(self.play(task))


def cpu_seconds():
    """CPU time of this process and of all of Ray's."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            pass
    return total


def memory():
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            pass
    return total


def direct(workers, tasks):
    waiting = {}
    for number in range(tasks):
        if len(waiting) >= 4 * len(workers):
            done, _ = ray.wait(list(waiting), num_returns=1)
            for one in done:
                assert len(ray.get(one)) == RESULT
                del waiting[one]
        waiting[workers[number % len(workers)].play.remote(bytes(TASK))] = None
    for one in ray.get(list(waiting)):
        assert len(one) == RESULT


def queues(workers, tasks):
    todo, results = Queue(), Queue()
    playing = [worker.play_all.remote(todo, results) for worker in workers]
    todo.put_nowait_batch([bytes(TASK) for _ in range(tasks)])
    for _ in range(tasks):
        assert len(results.get()) == RESULT
    for _ in workers:
        todo.put(None)
    ray.get(playing)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=5000)
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    started = time.time()
    workers = [Worker.remote() for _ in range(options.workers)]
    ray.get([worker.play.remote(bytes(TASK)) for worker in workers])
    joined = time.time() - started
    for name, play in [("direct", direct), ("queues", queues)]:
        started, cpu = time.time(), cpu_seconds()
        play(workers, options.tasks)
        seconds, used = time.time() - started, cpu_seconds() - cpu
        print(
            f"| Ray {ray.__version__}, {name} | {options.workers} | {options.tasks / seconds:.0f} | {joined:.1f} "
            f"| {used / options.tasks * 1e3:.2f} | {memory() / 1e6:.0f} |"
        )


if __name__ == "__main__":
    main()
