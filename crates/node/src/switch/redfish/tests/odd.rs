//! Services that do what the standard allows in ways of their own.

use super::bmc::Odd;
use super::*;
use crate::testing::says;

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
    says(
        switch.on().unwrap_err(),
        &["https://elsewhere.invalid/redfish/v1/Systems/1", "correct url"],
    );
    bmc.machine.lock().unwrap().odd = Odd::Circles;
    says(switch.on().unwrap_err(), &["more than 3 times"]);
    // Whatever went wrong, the session is ended.
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn in_which_ways_it_can_be_reset_may_be_told_elsewhere() {
    let (bmc, mut switch) = odd(Odd::ActionInfo);
    switch.on().unwrap();
    says(
        switch.off(false).unwrap_err(),
        &["ForceOn, ForceOff", "GracefulShutdown"],
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
    says(
        switch.off(false).unwrap_err(),
        &["GracefulShutdown is not among them"],
    );
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
    says(open(missing).state().unwrap_err(), &["correct `system`"]);
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
    says(
        switch.state().unwrap_err(),
        &["Invalid credentials.", "password is wrong"],
    );
    let (_bmc, mut switch) = odd(Odd::NoSessions);
    says(switch.state().unwrap_err(), &["auth = \"basic\""]);
}

#[test]
fn systems_are_counted_over_all_pages() {
    let (bmc, mut switch) = odd(Odd::Pages);
    assert_eq!(switch.state().unwrap(), Some(false));
    bmc.machine.lock().unwrap().systems = 3;
    says(switch.state().unwrap_err(), &["it has 3 systems"]);
    bmc.machine.lock().unwrap().odd = Odd::Nothing;
    bmc.machine.lock().unwrap().systems = 0;
    says(switch.state().unwrap_err(), &["it has no system"]);
}
