//! Power switches: a packet that wakes a machine, and a password that must be kept.

use super::{CAPACITY_PER_S, check, fixed, resize};
use crate::common::site::{Service, Site};
use crate::common::{Load, PATIENCE, refused};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_machine_wakes_by_its_packet() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let card = UdpSocket::bind("127.0.0.1:0").unwrap();
    card.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = site.behind_gateway(&fixed());
    let text = fs::read_to_string(&config).unwrap();
    let (before, _) = text.split_once("[nodes.web2.power]").unwrap();
    let stop = format!("kill $(cat {}/web2.pid)", site.dir.path().display());
    let power = format!(
        "[nodes.web2.power]\nkind = \"wake-on-lan\"\nmac = \"02:00:00:00:00:02\"\nbroadcast = \"{}\"\n\
         stop = {}\n",
        card.local_addr().unwrap(),
        serde_json::json!(["/bin/sh", "-c", stop])
    );
    fs::write(&config, format!("{before}{power}")).unwrap();
    let _controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let mut packet = [0; 256];
    let (length, _) = card.recv_from(&mut packet).unwrap();
    assert_eq!((length, packet[..6].to_vec()), (102, vec![0xff; 6]));
    assert_eq!(packet[96..102], [2, 0, 0, 0, 0, 2]);
    site.boot(2);
    site.until_states(&["serving", "serving"]);
    // Nobody can say whether its power is off: it is taken for off when its time to shut down is over.
    load.at(CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    assert!(!site.runs(2));
}

#[test]
fn a_password_that_everybody_may_read_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    fs::write(&password, "sesame").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let config = dir.path().join("resize.toml");
    fs::write(
        &config,
        format!(
            "[slo]\ntarget_ms = 250\n[law]\nname = \"always-on\"\n[gateways]\ng1 = \"unix:{0}/g\"\n[nodes.web1]\n\
             member = \"http://127.0.0.1:1\"\ncheck = \"tcp:127.0.0.1:1\"\n[nodes.web1.power]\nkind = \"redfish\"\n\
             url = \"https://bmc\"\nuser = \"u\"\npassword = {{ file = \"{0}/password\" }}\n\
             [admin]\nlisten = \"off\"\n",
            dir.path().display()
        ),
    )
    .unwrap();
    let said = refused(check(&config), &["resize.toml:10: nodes.web1.power", "chmod 600"]).err();
    assert!(!said.contains("sesame"));
}
