//! The service that runs the program, by systemd.
//!
//! In: the output of `systemctl show`. Out: whether the service runs, its main process, and its
//! programs. Source: systemctl(1), `show`; the D-Bus interface of systemd, `ExecStart`.

/// The arguments of `systemctl` before the name of the service.
pub const SHOW: [&str; 2] = ["show", "--property=ActiveState,MainPID,ExecStart"];
/// The service that is looked for unless `--service` names another.
pub const SERVICE: &str = "edge-runner.service";

/// What systemd says of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// Whether it was started; it may be about to start again.
    pub is_running: bool,
    /// The id of its main process; 0 if it has none.
    pub main_process: u32,
    programs: Vec<String>,
}

impl ServiceStatus {
    /// Reads the output; what is missing in it is as of a service that does not exist.
    pub fn read(text: &str) -> ServiceStatus {
        let mut status = ServiceStatus::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match name {
                "ActiveState" => status.is_running = !["inactive", "failed"].contains(&value),
                "MainPID" => status.main_process = value.parse().unwrap_or_default(),
                "ExecStart" => {
                    let path = value.strip_prefix("{ path=").and_then(|rest| rest.split(" ;").next());
                    status.programs.extend(path.map(str::to_owned));
                }
                _ => {}
            }
        }
        status
    }

    /// Returns the paths of the programs that it starts, as its unit has them.
    pub fn programs(&self) -> &[String] {
        &self.programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_systemctl_is_read() {
        // Of systemd 257.
        let running = ServiceStatus::read(
            "MainPID=812\nExecStart={ path=/usr/bin/edge-runner ; argv[]=/usr/bin/edge-runner $RUNNER_ARGS ; ignore_errors=no ; \
             start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\nActiveState=active\n",
        );
        assert!(running.is_running);
        assert_eq!(
            (running.main_process, running.programs()),
            (812, &["/usr/bin/edge-runner".to_owned()][..])
        );
        let waiting = ServiceStatus::read("MainPID=0\nActiveState=activating\n");
        assert!(waiting.is_running && waiting.main_process == 0);
        for absent in [
            "MainPID=0\nActiveState=inactive\n",
            "ActiveState=failed",
            "",
            "nonsense\nMainPID=x",
        ] {
            let status = ServiceStatus::read(absent);
            assert!(!status.is_running && status.programs().is_empty(), "{absent}");
        }
    }
}
