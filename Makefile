# Headroom. `make demo` shows it, `make test` checks it; `make help` lists the rest.
CARGO ?= cargo
DEMO_ARGS ?=

.PHONY: help demo test faults stress fuzz-gateway lint build bench-gateway bench-edge bench-cache bench-load bench-memcached bench-agent bench-capacity bench-sim bench-days bench-decide bench-reflex apache batching cache-tests capacity capacity-kinds cluster-cases mediawiki oncall-live oncall-suites resize setup-build setup-demo setup-release setup-test clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: setup-demo ## Two emulated clusters side by side under a compressed day: everything on, and under control
	$(CARGO) build --profile demo --locked --package headroom
	target/demo/headroom demo $(DEMO_ARGS)

build: setup-release ## The release binary, target/release/headroom
	$(CARGO) build --release --locked --package headroom

test: setup-test ## All tests; what this machine cannot run is listed as skipped
	@scripts/test

faults: setup-test ## 200 seeded faults on live programs: limits, servers left off, processes, mounts left behind (10 min; FAULTS_RUNS, _SEED, _ONLY, _ONE, _JOBS, _WAIT_S, _KEEP)
	@scripts/need unshare:util-linux mount
	RUST_BACKTRACE=0 $(CARGO) test --package headroom --locked --test faults -- --ignored --exact whole_suite --nocapture

stress: setup-test ## An hour of real databases under wrap with kills, storms and crashes, and a simulated day (MINUTES; STRESS_SEED, _ONLY, _ROUND_S)
	@scripts/need mariadbd:mariadb-server pgbench:postgresql
	RUST_BACKTRACE=0 $(CARGO) test --package headroom-sim --lib --locked -- --ignored --exact threads::tests::stress::a_day_leaves_nobody_waiting --nocapture
	RUST_BACKTRACE=0 STRESS_MINUTES=$(or $(MINUTES),60) $(CARGO) test --package headroom --locked --test stress -- --ignored --exact whole_stress --nocapture

fuzz-gateway: setup-test ## The gateway's parsers before inputs made by grammar and changed by the byte (MINUTES; FUZZ_SEED)
	RUST_BACKTRACE=0 HEADROOM_FUZZ_MINUTES=$(or $(MINUTES),10) HEADROOM_FUZZ_SEED=$(FUZZ_SEED) $(CARGO) test --package headroom-gateway --lib --locked -- --ignored --exact fuzz_tests::fuzz --nocapture

lint: setup-build ## rustfmt and clippy, as CI runs them
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench-gateway: setup-build ## CPU time per proxied request: gateway, HAProxy, nginx, alternating
	@scripts/need haproxy nginx wrk
	$(CARGO) run --release --locked --package headroom-gateway --example bench_gateway

bench-edge: setup-build ## TLS, HTTP/2, 2 GiB streams and 5,000 idle connections: gateway and HAProxy, alternating
	@scripts/need haproxy nginx wrk h2load:nghttp2-client
	$(CARGO) run --release --locked --package headroom-gateway --example bench_edge

bench-cache: setup-build ## CPU time per answer from memory: our cache, nginx's, Varnish's, alternating (BENCH_BYTES)
	@scripts/need nginx:nginx-light varnishd:varnish wrk
	$(CARGO) run --release --locked --package headroom-gateway --example bench_cache

bench-load: setup-build ## The load generator's rate per core and send-time error, beside wrk
	@scripts/need nginx wrk
	$(CARGO) run --release --locked --package headroom-load --example bench_load

bench-memcached: setup-build ## The memcached client's rate per core and send-time error, beside memtier, memaslap and mc-crusher
	@scripts/memcached-load

bench-agent: setup-build ## The agent's share of a core, and the time from a decision to the cap and the quota written
	$(CARGO) run --release --locked --package headroom-node --example agent_cost

bench-capacity: setup-build ## What eBPF costs per connection, and each way to measure an accept queue per sample
	@scripts/need clang ss:iproute2 netstat:net-tools vmstat:procps
	$(CARGO) run --release --locked --package headroom-node --example queue_cost

bench-sim: setup-build ## Requests simulated per second: this simulator, SimPy, Ciw, on the same job
	@scripts/bench-sim

bench-days: setup-build ## Days of a cluster with outages, boots that hang and surges: what each law of servers saves and loses, simulated (10 min)
	$(CARGO) run --release --locked --package headroom-sim --example bench_days

bench-decide: setup-build ## How long one decision of the joint law takes, for 1 to 1,000 servers
	$(CARGO) run --release --locked --package headroom-control --example bench_decide

bench-reflex: setup-build ## From the first request over a reflex's bound to the quota written, live, P50 and P99 (8 min; REFLEX_EVENTS)
	$(CARGO) test --release --locked --package headroom --test nodes -- --ignored --exact reflex::measurement --nocapture

cache-tests: build ## The gateway's cache before http-cache-tests, beside nginx, Varnish, Squid and Apache (3 min)
	@scripts/need npm nginx:nginx-light varnishd:varnish squid apache2
	scripts/cache-tests

apache: build ## Ten minutes of the Wikipedia trace on Debian's apache2, fixed and then slo-power
	@scripts/need apache2 php:libapache2-mod-php curl
	scripts/apache

capacity: build ## The capacity of Debian's apache2 from its accept queue: ramps, waves, requests that wait, five meters (half an hour)
	@scripts/need apache2 php:libapache2-mod-php curl snmpd clang ip:iproute2 netstat:net-tools vmstat:procps
	scripts/capacity

capacity-kinds: build ## Ten live servers whose capacity is known: what our estimator and the published one say of each (2 min)
	@scripts/need clang python3
	scripts/capacity-kinds

mediawiki: build ## Ten minutes each: Debian's MediaWiki behind our gateway and behind HAProxy, fixed and slo-power
	@scripts/need curl apache2 haproxy mariadbd:mariadb-server memcached php:php-cli '/usr/sbin/php-fpm*:php-fpm' \
	  /usr/share/mediawiki/index.php:mediawiki '/usr/lib/php/*/mysqli.so:php-mysql' '/usr/lib/php/*/apcu.so:php-apcu'
	scripts/mediawiki/run

batching: build ## The batching paper's experiment, live: one law after another on the auction site (16 min; SCENARIO, LAWS)
	@scripts/need python3
	scripts/batching

oncall-suites: build ## The databases' own test clients, alone and wrapped, and their starts and stops (an hour; SUITES, WORDS, TESTS, RUNS, PG_SOURCE)
	@scripts/need mariadbd:mariadb-server pgbench:postgresql sysbench /usr/share/mysql/mysql-test/mariadb-test-run:mariadb-test
	scripts/oncall/suites $(SUITES)

oncall-live: build ## MariaDB and PostgreSQL alone and on call: loads, policies with tightened SLOs, partial load (two hours; PARTS, RUNS, RUN_S, CONNECTIONS)
	@scripts/need mariadbd:mariadb-server pgbench:postgresql sysbench python3 taskset:util-linux
	scripts/oncall/live $(PARTS)

resize: build ## Short days: five live servers that a controller starts and stops, beside the capacity paper (11 min)
	@scripts/need python3 haproxy
	scripts/resize/run

cluster-cases: build ## A cluster's worst days, live: six servers behind an HAProxy or our gateway under three laws, and what is lost (12 min; CASES, LAWS)
	@scripts/need python3 haproxy
	scripts/cluster-cases

setup-build:
	@scripts/setup build

setup-demo:
	@scripts/setup demo

setup-release:
	@scripts/setup release

setup-test:
	@scripts/setup test

clean: ## Remove what was built and recorded
	$(CARGO) clean
	rm -rf out
