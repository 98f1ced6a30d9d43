//! The power of AMD server sockets by HSMP (see [`crate::hsmp`]): an average that the processor keeps, summed up over
//! time.

use super::refused::Refused;
use super::sensor::{PowerSensor, Quantity, Sensor, Sensors, believe, first_power};
use super::{Meter, MeterError, MeterSample};
use crate::hsmp::{self, HwmonSocket, Message, Port};
use crate::{Roots, file, powercap};
use headroom_units::{Source, Watts};

/// Reads the sockets' power.
#[derive(Debug)]
pub struct HsmpMeter {
    access: Access,
    sensors: Sensors,
}

#[derive(Debug)]
enum Access {
    Hwmon(Vec<HwmonSocket>),
    Device(Port),
}

impl HsmpMeter {
    /// Takes the first reading of every socket; the first sample covers the time since.
    ///
    /// # Errors
    /// [`MeterError::NoSensor`]: there is no HSMP. [`MeterError::File`], [`MeterError::Hsmp`], [`MeterError::Nonsense`]:
    /// there is and it does not answer.
    pub fn open(roots: &Roots) -> Result<Self, MeterError> {
        let sockets = hsmp::hwmon_sockets(roots);
        if !sockets.is_empty() {
            return Self::open_hwmon(roots, sockets);
        }
        match hsmp::device(roots) {
            Some(path) => Self::open_device(roots, Port::open(&path, false)?),
            None => Err(MeterError::NoSensor {
                what: "HSMP port",
                why: hsmp::why_none(roots),
                remedy: "take another meter",
            }),
        }
    }

    fn open_hwmon(roots: &Roots, sockets: Vec<HwmonSocket>) -> Result<Self, MeterError> {
        let mut all = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.iter().enumerate() {
            let zone = format!("package-{number}");
            let sensor = first_power(&zone, &socket.power(), Watts::new(powercap::MAX_WATTS))?;
            all.push(Sensor::new(zone, socket.power(), true, Quantity::Power(sensor)));
        }
        Ok(Self {
            access: Access::Hwmon(sockets),
            sensors: Sensors::new(roots, all, roots.source()),
        })
    }

    fn open_device(roots: &Roots, mut port: Port) -> Result<Self, MeterError> {
        let most = Watts::new(powercap::MAX_WATTS);
        let mut all = Vec::new();
        for socket in 0..port.sockets()? {
            let first = u64::from(port.ask(socket, Message::SocketPower)?) * 1_000;
            let zone = format!("package-{socket}");
            let path = port.path().to_path_buf();
            believe(first, most).map_err(|reason| MeterError::Nonsense {
                zone: zone.clone(),
                path: path.clone(),
                reason,
            })?;
            let quantity = Quantity::Power(PowerSensor::new(first, most));
            all.push(Sensor::new(zone, path, true, quantity));
        }
        Ok(Self {
            access: Access::Device(port),
            sensors: Sensors::new(roots, all, Source::Measured),
        })
    }
}

impl Meter for HsmpMeter {
    fn describe(&self) -> String {
        format!(
            "{}: an average that the processor keeps",
            self.sensors.counted().join(", ")
        )
    }

    fn name(&self) -> &'static str {
        "hsmp"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let readings: Vec<Option<u64>> = match &mut self.access {
            Access::Hwmon(sockets) => sockets
                .iter()
                .map(|socket| file::read_u64(&socket.power()).map(Some))
                .collect::<Result<_, _>>()?,
            Access::Device(port) => (0..self.sensors.all.len())
                .map(|socket| port.ask(socket as u16, Message::SocketPower))
                .map(|milliwatts| milliwatts.map(|milliwatts| Some(u64::from(milliwatts) * 1_000)))
                .collect::<Result<_, _>>()?,
        };
        self.sensors.advance(&readings)
    }

    fn refused(&self) -> Vec<Refused> {
        self.sensors.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::hsmp::fake::FakeSockets;
    use crate::power::Refusal;
    use headroom_units::Joules;
    use rustix::io::Errno;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn the_device_is_asked_socket_by_socket() {
        let sockets = FakeSockets::new(2);
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at(dir.path(), dir.path());
        let mut meter = HsmpMeter::open_device(&roots, Port::of(sockets.clone())).unwrap();
        let clock = FakeClock::default();
        meter.sensors.set_clock(Box::new(clock.clone()));
        sockets.0.lock().unwrap().power[1] = 110_000;
        clock.pass(Duration::from_secs(2), Duration::ZERO);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.power.unwrap().value, Watts::new(190.0));
        assert_eq!(sample.energy.value, Joules::new(380.0));
        sockets.0.lock().unwrap().fails = Some(Errno::TIMEDOUT);
        assert!(meter.sample().unwrap_err().to_string().contains("BIOS"));
        sockets.0.lock().unwrap().fails = None;
        sockets.0.lock().unwrap().power[0] = u32::MAX;
        clock.pass(Duration::from_secs(1), Duration::ZERO);
        assert_eq!(meter.sample().unwrap().power, None);
        assert_eq!(meter.refused()[0].reason, Refusal::Sentinel);
    }

    #[test]
    fn hwmon_is_preferred_and_sockets_are_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for number in [10, 9] {
            let chip = dir.path().join(format!("class/hwmon/hwmon{number}"));
            fs::create_dir_all(&chip).unwrap();
            fs::write(chip.join("name"), "amd_hsmp_hwmon\n").unwrap();
            fs::write(chip.join("power1_input"), format!("{}000000\n", 100 + number)).unwrap();
        }
        let mut meter = HsmpMeter::open(&Roots::at(dir.path(), dir.path())).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let sample = meter.sample().unwrap();
        assert_eq!(sample.power.unwrap().value, Watts::new(219.0));
        assert_eq!(sample.zones[0].power.unwrap().value, Watts::new(109.0));
    }

    #[test]
    fn a_machine_without_it_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let error = || {
            HsmpMeter::open(&Roots::at(dir.path(), dir.path()))
                .unwrap_err()
                .to_string()
        };
        assert!(error().contains("not AMD's"), "{}", error());
        fs::write(dir.path().join("cpuinfo"), "vendor_id : AuthenticAMD\n").unwrap();
        let error = error();
        assert!(error.contains("/dev/hsmp") && error.contains("BIOS"), "{error}");
    }
}
