//! Services that do what the standard allows in ways of their own.

use super::bmc::Odd;
use super::*;

/// A made-up one of this kind, and a switch for it.
fn odd(odd: Odd) -> (Bmc, RedfishSwitch) {
    let bmc = Bmc::start();
    bmc.machine.lock().unwrap().odd = odd;
    let switch = open(bmc.config());
    (bmc, switch)
}

#[test]
fn a_path_may_end_with_a_slash_and_an_action_need_not_name_its_target() {
    let (bmc, mut switch) = odd(Odd::Slashes);
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    assert_eq!(bmc.machine.lock().unwrap().resets(), ["On"]);
}

#[test]
fn a_redirection_is_followed_with_what_was_asked() {
    let (bmc, _) = odd(Odd::Redirects);
    let mut switch = open(RedfishConfig {
        system: Some("web1".into()),
        ..bmc.config()
    });
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    assert_eq!(bmc.machine.lock().unwrap().resets(), ["On"]);
}

#[test]
fn a_redirection_to_another_host_or_for_ever_is_not_followed() {
    let (bmc, mut switch) = odd(Odd::SendsAway);
    let error = switch.on().unwrap_err().to_string();
    assert!(
        error.contains("https://elsewhere.invalid/redfish/v1/Systems/1") && error.contains("correct url"),
        "{error}"
    );
    bmc.machine.lock().unwrap().odd = Odd::Circles;
    let error = switch.on().unwrap_err().to_string();
    assert!(error.contains("more than 3 times"), "{error}");
    // Whatever went wrong, the session is ended.
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn in_which_ways_it_can_be_reset_may_be_told_elsewhere() {
    let (bmc, mut switch) = odd(Odd::ActionInfo);
    switch.on().unwrap();
    let error = switch.off(false).unwrap_err().to_string();
    assert!(
        error.contains("ForceOn, ForceOff") && error.contains("GracefulShutdown"),
        "{error}"
    );
    switch.off(true).unwrap();
    assert_eq!(bmc.machine.lock().unwrap().resets(), ["ForceOn", "ForceOff"]);
}

#[test]
fn where_there_is_no_other_shutdown_the_power_button_of_a_machine_that_runs_is_pressed() {
    let (bmc, mut switch) = odd(Odd::Button);
    bmc.machine.lock().unwrap().power = "On";
    switch.off(false).unwrap();
    // It would switch on what is off.
    switch.off(false).unwrap();
    bmc.machine.lock().unwrap().power = "Paused";
    let error = switch.off(false).unwrap_err().to_string();
    assert!(error.contains("GracefulShutdown is not among them"), "{error}");
    assert_eq!(bmc.machine.lock().unwrap().resets(), ["PushPowerButton"]);
}

#[test]
fn an_answer_may_end_with_its_connection() {
    let (bmc, mut switch) = odd(Odd::NoLength);
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    let missing = RedfishConfig {
        system: Some("9".into()),
        ..bmc.config()
    };
    let error = open(missing).state().unwrap_err().to_string();
    assert!(error.contains("correct `system`"), "{error}");
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn a_connection_that_is_closed_between_two_questions_is_opened_again() {
    let (bmc, mut switch) = odd(Odd::ShortLived);
    for _ in 0..10 {
        assert_eq!(switch.state().unwrap(), Some(false));
    }
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn sessions_are_made_where_the_root_says_and_a_service_without_any_is_told_from_a_wrong_password() {
    let (bmc, mut switch) = odd(Odd::SessionsElsewhere);
    assert_eq!(switch.state().unwrap(), Some(false));
    fs::write(bmc.dir.path().join("password"), "wrong\n").unwrap();
    let error = switch.state().unwrap_err().to_string();
    assert!(
        error.contains("Invalid credentials.") && error.contains("password is wrong"),
        "{error}"
    );
    let (_bmc, mut switch) = odd(Odd::NoSessions);
    let error = switch.state().unwrap_err().to_string();
    assert!(error.contains("auth = \"basic\""), "{error}");
}

#[test]
fn systems_are_counted_over_all_pages() {
    let (bmc, mut switch) = odd(Odd::Pages);
    assert_eq!(switch.state().unwrap(), Some(false));
    bmc.machine.lock().unwrap().systems = 3;
    let error = switch.state().unwrap_err().to_string();
    assert!(error.contains("it has 3 systems"), "{error}");
    bmc.machine.lock().unwrap().odd = Odd::Nothing;
    bmc.machine.lock().unwrap().systems = 0;
    let error = switch.state().unwrap_err().to_string();
    assert!(error.contains("it has no system"), "{error}");
}
