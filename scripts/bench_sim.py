"""The same M/G/1 processor-sharing job in headroom-sim, SimPy and Ciw; started by scripts/bench-sim.

Each simulator is timed in CPU seconds of its own process. SimPy has no processor
sharing, so it is written by hand here, as its users do, in the quickest way known: virtual time and a heap, an O(log n)
step for an arrival or a departure, like headroom-sim's. Ciw has it built in (ciw.PSNode).
"""

import heapq
import json
import math
import random
import resource
import subprocess
import sys
import time

RHO = 0.8
SCV = 4.0
# Warm-up: the first requests meet an emptier server.
WARM_UP = 0.02

SIGMA = math.sqrt(math.log(1 + SCV))
SIZES = {
    "exponential": lambda rng: rng.expovariate(1.0),
    "lognormal": lambda rng: rng.lognormvariate(-SIGMA * SIGMA / 2, SIGMA),
}


def summary(latencies):
    latencies = sorted(latencies[int(len(latencies) * WARM_UP):])
    return sum(latencies) / len(latencies), latencies[math.ceil(0.95 * len(latencies)) - 1]


def simpy_job(size, requests):
    import simpy

    rng = random.Random(1)
    env = simpy.Environment()
    jobs = []  # (virtual time at which it is done, when it arrived)
    latencies = []
    virtual, at = 0.0, 0.0
    woken = None

    def advance():
        nonlocal virtual, at
        if jobs:
            virtual += (env.now - at) / len(jobs)
        at = env.now

    def source():
        for _ in range(requests):
            yield env.timeout(rng.expovariate(RHO))
            advance()
            heapq.heappush(jobs, (virtual + size(rng), env.now))
            if not woken.triggered:
                woken.succeed()

    def server():
        nonlocal woken, virtual
        while len(latencies) < requests:
            woken = env.event()
            if not jobs:
                yield woken
                continue
            done = env.timeout((jobs[0][0] - virtual) * len(jobs))
            yield done | woken
            if done.processed:
                advance()
                virtual, arrived = heapq.heappop(jobs)
                latencies.append(env.now - arrived)

    # The server first, so that it waits when the first request comes.
    env.process(server())
    env.process(source())
    begin = time.process_time()
    env.run()
    return time.process_time() - begin, latencies


def ciw_job(name, requests):
    import ciw

    service = {
        "exponential": ciw.dists.Exponential(rate=1.0),
        "lognormal": ciw.dists.Lognormal(mean=-SIGMA * SIGMA / 2, sd=SIGMA),
    }[name]
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=RHO)],
        service_distributions=[service],
        number_of_servers=[float("inf")],
        ps_thresholds=[1],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network, node_class=ciw.PSNode)
    begin = time.process_time()
    simulation.simulate_until_max_customers(requests, method="Finish")
    seconds = time.process_time() - begin
    records = simulation.get_all_records()
    return seconds, [record.exit_date - record.arrival_date for record in records]


def headroom_job(binary, name, requests):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    answer = subprocess.run([binary, str(requests), name], check=True, capture_output=True, text=True)
    run = json.loads(answer.stdout)
    return used() - before, run["requests"], run["mean"], run["p95"], run["peak_memory_kb"]


def main():
    binary, requests, simpy_requests, ciw_requests = sys.argv[1], *map(int, sys.argv[2:5])
    print(f"M/G/1 processor sharing, load {RHO}, mean size 1; theory: mean {1 / (1 - RHO):.2f}")
    print(f"{'size':12} {'simulator':14} {'requests':>11} {'CPU s':>8} {'requests/s':>12} {'mean':>7} {'P95':>7}  ratio")
    for name, size in SIZES.items():
        short_kb = headroom_job(binary, name, requests // 10)[4]
        seconds, count, mean, p95, memory_kb = headroom_job(binary, name, requests)
        ours = count / seconds
        rows = [("headroom-sim", count, seconds, mean, p95)]
        seconds, latencies = simpy_job(size, simpy_requests)
        rows.append(("SimPy 4.1.1", len(latencies), seconds, *summary(latencies)))
        seconds, latencies = ciw_job(name, ciw_requests)
        rows.append(("Ciw 3.2.7", len(latencies), seconds, *summary(latencies)))
        for simulator, count, seconds, mean, p95 in rows:
            rate = count / seconds
            print(
                f"{name:12} {simulator:14} {count:11,} {seconds:8.2f} {rate:12,.0f} {mean:7.3f} {p95:7.2f}"
                f"  {ours / rate:,.0f}x"
            )
        print(
            f"{'':12} peak memory of headroom-sim: {memory_kb / 1024:.1f} MB, "
            f"of a tenth of the requests {short_kb / 1024:.1f} MB"
        )


if __name__ == "__main__":
    main()
