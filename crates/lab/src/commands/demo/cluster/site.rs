//! A cluster: emulated servers, and a gateway in front of them.

use super::companion::Companion;
use super::server::{Meter, Server, ServerPlan};
use crate::emulator::{EmulatorOptions, parts_of, server_folder};
use anyhow::Context;
use headroom_physics::MachineFigures;
use headroom_testbed::hardware::HardwareConfig;
use headroom_wire::Address;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const BOOTED_WITHIN: Duration = Duration::from_secs(60);
const GATEWAY_WITHIN: Duration = Duration::from_secs(20);

/// A cluster. Dropped, it is taken away.
#[derive(Debug)]
pub struct Site {
    /// What it is called.
    pub name: &'static str,
    /// Its servers.
    pub servers: Vec<Server>,
    /// The paths of the pages.
    pub pages: Vec<String>,
    gateway: Companion,
    address: SocketAddr,
    control: Address,
}

/// What the clusters of a demo are made of.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Servers of each cluster.
    pub servers: usize,
    /// What a server draws.
    pub figures: &'a MachineFigures,
    /// What it is emulated as.
    pub hardware: &'a HardwareConfig,
    /// What the wikis' pages cost.
    pub pages: &'a [String],
    /// The demo's folder: beside it is all that ends with the demo.
    pub folder: &'a Path,
    /// Where configurations and logs stay.
    pub kept: &'a Path,
}

impl Site {
    /// Starts one whose first server has this number among those of the demo, and waits until all of them serve.
    ///
    /// # Errors
    /// What of it cannot be started, and why.
    pub fn start(name: &'static str, first: usize, plan: &Plan<'_>) -> anyhow::Result<Self> {
        let kept = plan.kept.join(name);
        fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
        let mut servers = Vec::new();
        for number in 0..plan.servers {
            let at = server_folder(plan.folder, first + number);
            let real = format!("headroom-emulated-{}-{}", std::process::id(), first + number);
            servers.push(Server::start(ServerPlan {
                name: format!("n{}", number + 1),
                parts: parts_of(&at),
                emulator: EmulatorOptions {
                    hardware: plan.hardware.clone(),
                    at,
                    groups: Vec::new(),
                    real: Some((real, "/".to_owned())),
                },
                figures: plan.figures.clone(),
                pages: plan.pages.to_vec(),
                kept: kept.clone(),
            })?);
        }
        let mut pages = Vec::new();
        for server in &servers {
            pages = server.booted(BOOTED_WITHIN)?;
        }
        let socket = parts_of(&server_folder(plan.folder, first)).join("gateway.sock");
        let mut arguments: Vec<OsString> = ["gateway", "--listen", "127.0.0.1:0", "--drain", "1"]
            .map(OsString::from)
            .into();
        for server in &servers {
            arguments.extend(["--backend".into(), member(server).into()]);
        }
        let mut control = OsString::from("unix:");
        control.push(&socket);
        arguments.extend(["--control".into(), control]);
        let gateway = Companion::start(&arguments, &kept.join("gateway.log")).context("the gateway")?;
        let address = gateway.said("listening on ", GATEWAY_WITHIN)?;
        let address = address
            .parse()
            .with_context(|| format!("the gateway listens on {address:?}"))?;
        gateway.said("control on ", GATEWAY_WITHIN)?;
        Ok(Self {
            name,
            servers,
            pages,
            gateway,
            address,
            control: Address::Unix(socket),
        })
    }

    /// Where requests are sent.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The gateway's control port.
    pub fn control(&self) -> Address {
        self.control.clone()
    }

    /// What the balancer calls each server.
    pub fn members(&self) -> Vec<String> {
        self.servers.iter().map(member).collect()
    }

    /// The servers' names.
    pub fn names(&self) -> Vec<String> {
        self.servers
            .iter()
            .map(|server| server.name().to_owned())
            .collect()
    }

    /// The servers' meters.
    pub fn meters(&self) -> Vec<Meter> {
        self.servers.iter().map(Server::meter).collect()
    }

    /// All of its processes.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.servers.iter().flat_map(Server::pids).collect();
        pids.extend(self.gateway.pids());
        pids
    }
}

fn member(server: &Server) -> String {
    format!("http://{}", server.wiki())
}
