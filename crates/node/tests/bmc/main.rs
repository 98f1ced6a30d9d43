//! Power switches against service processors that others wrote: OpenIPMI's `ipmi_sim` and pyghmi's `fakebmc` (IPMI),
//! OpenStack's `sushy-emulator` (Redfish); Wake-on-LAN beside `etherwake` and `wakeonlan`.

mod common;
mod ipmi;
mod redfish;
#[path = "../common/testing.rs"]
mod testing;
mod wake;
