//! The front door: the gateway's process, whatever becomes of it or of the control side.

use crate::common::{
    Config, Group, KeepAlive, Program, Server, Up, assert_has, copy_headroom, free_port, gateway_in, get,
    is_alive, kill, number, refused, serves, serving_at, until, wait,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// What the admin port says of the gateway's process, once it has that state.
fn gateway(up: &Up, state: &str) -> serde_json::Value {
    until(&format!("the gateway is {state}"), || {
        let status: serde_json::Value = serde_json::from_str(&up.admin("/status").body).ok()?;
        let gateway = status["gateway"].clone();
        (gateway["state"] == state).then_some(gateway)
    })
}

fn pid_of(gateway: &serde_json::Value) -> u32 {
    u32::try_from(gateway["pid"].as_u64().unwrap()).unwrap()
}

fn left_in(config: &Config) -> Vec<String> {
    let entries = fs::read_dir(config.run_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("gateway")).collect()
}

#[test]
fn a_gateway_that_is_killed_is_started_again_where_it_was_and_is_ended_with_the_run() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let mut up = Up::start(&config);
    serves(up.gateway);
    let first = pid_of(&gateway(&up, "serving"));
    kill(first);
    up.counted("headroom_gateway_restarts_total", 1.0);
    serves(up.gateway);
    let second = until("the status says who serves now", || {
        let now = gateway(&up, "serving");
        (pid_of(&now) != first).then_some(now)
    });
    assert_eq!(second["restarts"], 1, "{second}");
    assert_has(up.program.err(), &["the gateway died"]);
    let before = up.metrics().sum("headroom_service_completions_total").unwrap();
    until("its requests are counted again", || {
        serves(up.gateway);
        (up.metrics().sum("headroom_service_completions_total")? > before).then_some(())
    });
    wait("it is ready again", || up.admin("/readyz").status == 200);
    up.program.stop();
    assert!(!is_alive(pid_of(&second)), "it ends with the run");
    assert_eq!(left_in(&config), Vec::<String>::new());
    assert!(get(up.gateway, "/").is_err());
}

#[test]
fn the_gateway_has_neither_root_nor_capabilities_nor_a_way_to_them() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address).with("threads = 1", "threads = 2\nuser = \"4711\"");
    let mut up = Up::start(&config);
    serves(up.gateway);
    let pid = pid_of(&gateway(&up, "serving"));
    let mut tasks = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(":\t")).collect();
        assert_eq!(fields["Uid"], "4711\t4711\t4711\t4711");
        assert_eq!(fields["Gid"], "4711\t4711\t4711\t4711");
        assert_eq!(fields["Groups"].trim(), "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(fields[set], "0000000000000000", "{set}");
        }
        assert_eq!(fields["NoNewPrivs"], "1");
        tasks += 1;
    }
    assert!(tasks > 3, "its threads too");
    let group_of = |pid: u32| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        rustix::process::getpgid(pid).unwrap()
    };
    assert_ne!(group_of(pid), group_of(up.program.pid()));
    up.program.signal(Signal::INT);
    up.program.succeeds();

    let config =
        Config::new(&group, server.address).with("threads = 1", "threads = 1\nuser = \"no-such-user\"");
    let line = config.line_of("no-such-user");
    let program = refused(config.command(), &[]);
    let said = format!("headroom.toml:{line}: gateway.user: there is no user \"no-such-user\"");
    assert_has(program.err(), &[&said]);
}

#[test]
fn the_gateway_has_no_terminal_no_file_and_no_secret_of_whoever_started_it() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let secret = config.dir().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    // A shell leaves a file open, as a careless script does.
    let up = config.command();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "exec \"$@\" 9<\"$SECRET_FILE\"", "sh"])
        .arg(up.get_program())
        .args(up.get_args())
        .env("SECRET_FILE", &secret)
        .env("SECRET_TOKEN", "hunter2")
        .env("NOTIFY_SOCKET", config.dir().join("notify"));
    let mut program = Program::start(&mut shell);
    program.said("serving ");
    let pid = until("its record", || gateway_in(&config.run_dir()));
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environ = String::from_utf8_lossy(&environ);
    assert!(
        !environ.contains("SECRET") && !environ.contains("NOTIFY"),
        "{environ}"
    );
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let to = fs::read_link(fd.unwrap().path()).unwrap_or_default();
        assert_ne!(to, secret);
    }
    let session = rustix::process::getsid(Pid::from_raw(i32::try_from(pid).unwrap())).unwrap();
    assert_eq!(
        session.as_raw_nonzero().get(),
        i32::try_from(pid).unwrap(),
        "a session of its own"
    );
    program.stop();
}

#[test]
fn a_gateway_that_hangs_is_replaced_also_where_the_programs_file_was() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let (program, newer) = (config.dir().join("headroom"), config.dir().join("newer"));
    copy_headroom(&program);
    copy_headroom(&newer);
    let mut command = std::process::Command::new(&program);
    command.args(config.command().get_args());
    let mut up = Program::start(&mut command);
    let address = serving_at(&mut up);
    serves(address);
    let pid = until("its record", || gateway_in(&config.run_dir()));
    fs::rename(&newer, &program).unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::STOP).unwrap();
    up.said("and is killed");
    serves(address);
    assert_ne!(gateway_in(&config.run_dir()), Some(pid));
    up.stop();
}

/// Kills the control side under load, has the next one take over; how many requests failed meanwhile.
fn succession(change: impl Fn(Config) -> Config, adopted: bool) {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let config =
        Config::new(&group, server.address).with("127.0.0.1:0\"]\nthreads", &format!("{listen}\"]\nthreads"));
    let mut up = Up::start(&config);
    let first = pid_of(&gateway(&up, "serving"));
    let traffic = KeepAlive::to(up.gateway, 4);
    traffic.flows(100);
    kill(up.program.pid());
    up.program.wait();
    traffic.flows(300);
    assert!(is_alive(first), "the gateway goes on");

    let config = change(config);
    let mut next = Up::start(&config);
    assert_eq!(next.gateway.port(), port);
    let second = gateway(&next, "serving");
    assert_eq!(second["adopted"], adopted, "{second}");
    assert_eq!(pid_of(&second) == first, adopted);
    traffic.flows(300);
    if !adopted {
        wait("the old gateway has drained", || !is_alive(first));
    }
    let counted = next.metrics().sum("headroom_service_completions_total").unwrap();
    next.counted("headroom_service_completions_total", counted + 50.0);
    assert_eq!(traffic.failed(), Vec::<String>::new(), "{}", next.program.err());
    drop(traffic);
    next.program.stop();
    assert!(!is_alive(first) && !is_alive(pid_of(&second)));
    assert_eq!(left_in(&config), Vec::<String>::new());
    assert!(number(&next.program.json(), "requests.completed") > 0.0);
}

#[test]
fn requests_flow_while_the_control_side_is_killed_and_its_successor_takes_over_the_gateway() {
    succession(|config| config, true);
}

#[test]
fn a_successor_with_another_configuration_replaces_the_gateway_without_a_lost_request() {
    succession(|config| config.with("threads = 1", "threads = 2"), false);
}
