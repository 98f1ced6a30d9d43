//! Redfish: OpenStack's emulator of service processors, behind TLS, with machines that do nothing.

use crate::common::{PASSWORD, Running, free_tcp_port, program, secret, until};
use crate::testing::says;
use headroom_node::switch::{PowerSwitch, RedfishAuth, RedfishConfig, RedfishSwitch};
use std::cell::RefCell;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const FIRST: &str = "27946b59-9e44-4fa7-8e91-f3527a1ef094";
const SECOND: &str = "4a2d7f0c-1c1d-4c0e-9c68-1f3c8a3b9d11";
/// bcrypt of the password, as the emulator wants it.
const HASH: &str = "$2b$04$9rFPBbM0/ojPHE1wItDGeuFGOrvsq0.kCwmgM.QGGxToM8r2N9.J6";

struct Sushy {
    dir: TempDir,
    port: u16,
    _running: Running,
}

impl Sushy {
    fn start(systems: &[(&str, &str)]) -> Option<Self> {
        let emulator = program("sushy-emulator", "pip install sushy-tools")?;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let key = rcgen::KeyPair::generate().unwrap();
        // As service processors have them: its own authority, with a name that nobody calls it by.
        let mut params = rcgen::CertificateParams::new(vec!["bmc".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        fs::write(at("bmc.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(at("bmc.key"), key.serialize_pem()).unwrap();
        fs::write(at("users"), format!("headroom:{HASH}\n")).unwrap();
        fs::create_dir(at("state")).unwrap();
        let systems: String = systems
            .iter()
            .map(|(id, name)| {
                format!("{{'uuid': '{id}', 'name': '{name}', 'power_state': 'Off', 'nics': []}},\n")
            })
            .collect();
        // Its machines take one to eleven seconds to do what they are told; here always one.
        let config = format!(
            "from sushy_tools.emulator.resources.systems import fakedriver\n\
             fakedriver.random.randint = lambda least, most: least\n\
             SUSHY_EMULATOR_AUTH_FILE = '{dir}/users'\nSUSHY_EMULATOR_STATE_DIR = '{dir}/state'\n\
             SUSHY_EMULATOR_FAKE_SYSTEMS = [\n{systems}]\n",
            dir = dir.path().display()
        );
        fs::write(at("sushy.py"), config).unwrap();
        let port = free_tcp_port();
        let mut command = Command::new(emulator);
        command
            .args(["--fake", "-i", "127.0.0.1", "-p", &port.to_string()])
            .arg("--config")
            .arg(at("sushy.py"))
            .arg("--ssl-certificate")
            .arg(at("bmc.crt"))
            .arg("--ssl-key")
            .arg(at("bmc.key"));
        let mut running = Running::start(&mut command, at("log"))?;
        running.until_tcp(port);
        Some(Self {
            dir,
            port,
            _running: running,
        })
    }

    fn config(&self) -> RedfishConfig {
        RedfishConfig {
            url: format!("https://127.0.0.1:{}", self.port),
            system: None,
            user: "headroom".into(),
            password: secret(self.dir.path(), "password", PASSWORD),
            auth: RedfishAuth::Basic,
            ca_file: None,
            certificate: Some(self.dir.path().join("bmc.crt")),
            limit_s: 30.0,
        }
    }

    /// How often it took a reset.
    fn resets(&self) -> usize {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("ComputerSystem.Reset"));
        lines.filter(|line| line.contains(" 204 ")).count()
    }
}

fn error(config: RedfishConfig) -> String {
    RedfishSwitch::open(config)
        .unwrap()
        .state()
        .unwrap_err()
        .to_string()
}

fn switched(switch: &mut RedfishSwitch, tell: impl Fn(&mut RedfishSwitch), on: bool) {
    tell(switch);
    let switch = RefCell::new(switch);
    until("its power", || switch.borrow_mut().state().unwrap() == Some(on));
}

#[test]
fn one_system_is_switched_on_shut_down_and_switched_off() {
    let Some(sushy) = Sushy::start(&[(FIRST, "web1")]) else {
        return;
    };
    let mut switch = RedfishSwitch::open(sushy.config()).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    switched(&mut switch, |switch| switch.on().unwrap(), true);
    // What is so already is not told.
    switch.on().unwrap();
    switched(&mut switch, |switch| switch.off(false).unwrap(), false);
    switch.off(false).unwrap();
    switched(&mut switch, |switch| switch.on().unwrap(), true);
    switched(&mut switch, |switch| switch.off(true).unwrap(), false);
    assert_eq!(sushy.resets(), 4);
}

#[test]
fn one_of_several_systems_is_named_by_its_id_or_by_a_name_that_redirects_to_it() {
    let Some(sushy) = Sushy::start(&[(FIRST, "web1"), (SECOND, "web2")]) else {
        return;
    };
    let said = error(sushy.config());
    assert!(
        said.contains("it has 2 systems: name one of them") && said.contains(FIRST) && said.contains(SECOND),
        "{said}"
    );
    let named = |system: &str| RedfishConfig {
        system: Some(system.into()),
        ..sushy.config()
    };
    let mut second = RedfishSwitch::open(named("web2")).unwrap();
    switched(&mut second, |switch| switch.on().unwrap(), true);
    let mut second = RedfishSwitch::open(named(SECOND)).unwrap();
    assert_eq!(second.state().unwrap(), Some(true));
    let mut first = RedfishSwitch::open(named("web1")).unwrap();
    assert_eq!(first.state().unwrap(), Some(false));
    let said = error(named("web9"));
    says(&said, &["no /redfish/v1/Systems/web9: correct `system`"]);
}

#[test]
fn what_it_refuses_is_told_with_what_to_do() {
    let Some(sushy) = Sushy::start(&[(FIRST, "web1")]) else {
        return;
    };
    let wrong = RedfishConfig {
        password: secret(sushy.dir.path(), "wrong", "open it"),
        ..sushy.config()
    };
    let said = error(wrong);
    assert!(
        said.contains("Incorrect username or password") && !said.contains("open it"),
        "{said}"
    );
    // It has no sessions, and says that an authorization is required.
    let sessions = RedfishConfig {
        auth: RedfishAuth::Session,
        ..sushy.config()
    };
    let said = error(sessions);
    assert!(said.contains("set auth = \"basic\""), "{said}");
    let authority = RedfishConfig {
        ca_file: sushy.config().certificate,
        certificate: None,
        ..sushy.config()
    };
    let said = error(authority);
    assert!(said.contains("as certificate, not as ca_file"), "{said}");
    assert_eq!(sushy.resets(), 0);
}
