//! Environments on the wire.

use crate::error::Code;
use crate::fields::{Fields, Problem, change_metadata};
use crate::time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_core::{DriverName, Environment, EnvironmentId, Network, SandboxLimits, TenantId, Timestamp};

/// Longest name, in characters.
const MAX_NAME: usize = 256;

/// Longest description, in characters.
const MAX_DESCRIPTION: usize = 4_096;

/// An environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireEnvironment {
    /// Its id.
    pub id: String,
    /// Always `environment`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// How its sandboxes are made.
    pub config: Value,
    /// Notes of the client.
    pub metadata: BTreeMap<String, String>,
    /// Always null.
    pub scope: Option<String>,
    /// When it was made.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
    /// When it was archived.
    pub archived_at: Option<String>,
    /// Ours: what is in force.
    pub effective: EffectiveEnvironment,
    /// Ours: what was asked for and is not in force, or is dangerous.
    pub warnings: Vec<String>,
}

/// What is in force; a session says what its machine could not enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveEnvironment {
    /// Which driver runs it.
    pub driver: String,
    /// `off` or `host`.
    pub network: String,
}

impl WireEnvironment {
    /// An environment as the API shows it.
    pub fn of(environment: &Environment) -> Self {
        let (driver, network) = (driver_word(environment.driver), network_word(environment.network));
        let networking = match environment.network {
            Network::Host => json!({"type": "unrestricted"}),
            Network::Off => {
                json!({"type": "limited", "allowed_hosts": [], "allow_mcp_servers": false, "allow_package_managers": false})
            }
        };
        let limits = environment.limits;
        let config = json!({
            "type": "cloud",
            "networking": networking,
            "packages": {"type": "packages", "apt": [], "cargo": [], "gem": [], "go": [], "npm": [], "pip": []},
            "driver": driver,
            "network": network,
            "limits": {
                "memory_bytes": limits.memory_bytes,
                "processes": limits.processes,
                "cpu_millis": limits.cpu_millis,
                "disk_bytes": limits.disk_bytes,
            },
        });
        Self {
            id: environment.id.to_string(),
            kind: "environment".into(),
            name: environment.name.clone(),
            description: environment.description.clone(),
            config,
            metadata: environment.metadata.clone(),
            scope: None,
            created_at: time::write(environment.created_at),
            updated_at: time::write(environment.updated_at),
            archived_at: environment.archived_at.map(time::write),
            effective: EffectiveEnvironment { driver: driver.into(), network: network.into() },
            warnings: warnings(environment),
        }
    }
}

fn warnings(environment: &Environment) -> Vec<String> {
    let network = match environment.network {
        Network::Off => {
            "commands reach no network; unrestricted networking is accepted and not in force: set config.network to host to allow it"
        }
        Network::Host => {
            "commands reach everything that the host reaches, services of the host and of its network included"
        }
    };
    let driver = match environment.driver {
        DriverName::Namespace => None,
        DriverName::Landlock => Some("the driver landlock hides no processes and isolates no network"),
        DriverName::Process => Some("the driver process isolates nothing: commands have the rights of the worker"),
    };
    std::iter::once(network).chain(driver).map(str::to_owned).collect()
}

fn driver_word(driver: DriverName) -> &'static str {
    match driver {
        DriverName::Namespace => "namespace",
        DriverName::Landlock => "landlock",
        DriverName::Process => "process",
    }
}

fn network_word(network: Network) -> &'static str {
    match network {
        Network::Off => "off",
        Network::Host => "host",
    }
}

/// What a request says about an environment; all fields may be left out.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentChange {
    name: Option<String>,
    description: Option<Option<String>>,
    config: Option<Config>,
    metadata: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Config {
    driver: Option<DriverName>,
    network: Option<Network>,
    limits: Option<SandboxLimits>,
}

impl EnvironmentChange {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field that is wrong or not served.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Problem> {
        let name = match fields.get("name") {
            Some(_) => Some(fields.required_text("name", MAX_NAME)?),
            None => None,
        };
        Ok(Self {
            name,
            description: fields
                .change("description")
                .map(|_| Ok(fields.text("description", MAX_DESCRIPTION)?.filter(|text| !text.is_empty())))
                .transpose()?,
            config: fields.inner("config")?.map(|config| Config::read(&config)).transpose()?,
            metadata: fields.metadata()?,
        })
    }

    /// A new environment.
    ///
    /// # Errors
    /// When the name is missing.
    pub fn create(self, id: EnvironmentId, tenant: TenantId, now: Timestamp) -> Result<Environment, Problem> {
        let name = self.name.clone().ok_or_else(|| Problem::new(Code::MissingField, "name: this field is required"))?;
        let mut environment = Environment {
            id,
            tenant,
            name,
            description: None,
            driver: DriverName::default(),
            network: Network::default(),
            limits: SandboxLimits::default(),
            metadata: BTreeMap::new(),
            created_at: now,
            updated_at: now,
            archived_at: None,
        };
        self.apply(&mut environment)?;
        Ok(environment)
    }

    /// Changes an environment; times are the caller's.
    ///
    /// # Errors
    /// When the result breaks a bound.
    pub fn apply(self, environment: &mut Environment) -> Result<(), Problem> {
        let Self { name, description, config, metadata } = self;
        environment.name = name.unwrap_or_else(|| environment.name.clone());
        environment.description = description.unwrap_or_else(|| environment.description.clone());
        let config = config.unwrap_or_default();
        environment.driver = config.driver.unwrap_or(environment.driver);
        environment.network = config.network.unwrap_or(environment.network);
        environment.limits = config.limits.unwrap_or(environment.limits);
        change_metadata(&mut environment.metadata, metadata)
    }
}

impl Config {
    fn read(config: &Fields<'_>) -> Result<Self, Problem> {
        match config.kind()? {
            "cloud" => {}
            kind => {
                return Err(Problem::new(
                    Code::UnsupportedEnvironment,
                    format!("{}: {kind:?} is not served yet", config.path("type")),
                ));
            }
        }
        if let Some(packages) = config.inner("packages")? {
            for name in ["apt", "cargo", "gem", "go", "npm", "pip"] {
                if packages.list(name, 1_000)?.is_some_and(|list| !list.is_empty()) {
                    return Err(Problem::new(
                        Code::UnsupportedPackages,
                        format!("{}: packages are not installed yet", packages.path(name)),
                    ));
                }
            }
        }
        if config.get("image").is_some() {
            return Err(Problem::new(
                Code::UnsupportedFeature,
                format!("{}: images are not served yet", config.path("image")),
            ));
        }
        let driver = match config.text("driver", 32)?.as_deref() {
            None => None,
            Some("namespace") => Some(DriverName::Namespace),
            Some("landlock") => Some(DriverName::Landlock),
            Some("process") => Some(DriverName::Process),
            Some(other) => {
                return Err(Problem::new(
                    Code::UnsupportedEnvironment,
                    format!("{}: {other:?} is not one of namespace, landlock, process", config.path("driver")),
                ));
            }
        };
        let wanted = match config.text("network", 32)?.as_deref() {
            None => None,
            Some("off") => Some(Network::Off),
            Some("host") => Some(Network::Host),
            Some(other) => {
                return Err(Problem::new(
                    Code::UnsupportedNetworking,
                    format!("{}: {other:?} is neither off nor host", config.path("network")),
                ));
            }
        };
        let network = read_networking(config, wanted)?;
        let limits = config.inner("limits")?.map(|limits| read_limits(&limits)).transpose()?;
        Ok(Self { driver, network, limits })
    }
}

fn read_networking(config: &Fields<'_>, wanted: Option<Network>) -> Result<Option<Network>, Problem> {
    let Some(networking) = config.inner("networking")? else {
        return Ok(wanted);
    };
    match networking.kind()? {
        // Accepted, and off unless our own field says otherwise.
        "unrestricted" => Ok(wanted),
        "limited" => {
            let refused = |name: &str| {
                Problem::new(
                    Code::UnsupportedNetworking,
                    format!("{}: access to some hosts only is not served yet", networking.path(name)),
                )
            };
            if networking.list("allowed_hosts", 1_000)?.is_some_and(|hosts| !hosts.is_empty()) {
                return Err(refused("allowed_hosts"));
            }
            for name in ["allow_mcp_servers", "allow_package_managers"] {
                if networking.flag(name)?.unwrap_or(false) {
                    return Err(refused(name));
                }
            }
            if wanted == Some(Network::Host) {
                return Err(Problem::invalid(&config.path("network"), "host contradicts limited networking"));
            }
            Ok(Some(Network::Off))
        }
        kind => Err(Problem::new(
            Code::UnsupportedNetworking,
            format!("{}: {kind:?} is not served", networking.path("type")),
        )),
    }
}

fn read_limits(limits: &Fields<'_>) -> Result<SandboxLimits, Problem> {
    let positive = |name: &str| match limits.number(name)? {
        Some(0) => Err(Problem::invalid(&limits.path(name), "at least 1")),
        other => Ok(other),
    };
    let small = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Ok(SandboxLimits {
        memory_bytes: positive("memory_bytes")?,
        processes: small(positive("processes")?),
        cpu_millis: small(positive("cpu_millis")?),
        disk_bytes: positive("disk_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(body: Value) -> Result<Value, Code> {
        let fields = Fields::root(&body).map_err(|problem| problem.code)?;
        let change = EnvironmentChange::read(&fields).map_err(|problem| problem.code)?;
        let environment = change.create(EnvironmentId::from_bits(1), TenantId::default_tenant(), Timestamp(0));
        environment
            .map(|environment| serde_json::to_value(WireEnvironment::of(&environment)).expect("plain"))
            .map_err(|problem| problem.code)
    }

    #[test]
    fn unrestricted_networking_is_accepted_and_said_to_be_off() {
        let environment =
            create(json!({"name": "e", "config": {"type": "cloud", "networking": {"type": "unrestricted"}}}))
                .expect("valid");
        assert_eq!(environment["effective"], json!({"driver": "namespace", "network": "off"}));
        assert!(environment["warnings"][0].as_str().is_some_and(|text| text.contains("not in force")));
    }

    #[test]
    fn the_network_of_the_host_is_asked_for_by_name_and_said_loudly() {
        let environment = create(
            json!({"name": "e", "config": {"type": "cloud", "network": "host", "limits": {"memory_bytes": 1048576}}}),
        )
        .expect("valid");
        assert_eq!(environment["config"]["networking"], json!({"type": "unrestricted"}));
        assert_eq!(environment["config"]["limits"]["memory_bytes"], 1_048_576);
        assert_eq!(environment["effective"]["network"], "host");
    }

    #[test]
    fn what_is_not_served_is_refused_with_a_code() {
        for (config, code) in [
            (json!({"type": "self_hosted"}), Code::UnsupportedEnvironment),
            (json!({"type": "cloud", "packages": {"pip": ["x"]}}), Code::UnsupportedPackages),
            (
                json!({"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["a.example"]}}),
                Code::UnsupportedNetworking,
            ),
            (json!({"type": "cloud", "driver": "gvisor"}), Code::UnsupportedEnvironment),
            (json!({"type": "cloud", "image": "debian"}), Code::UnsupportedFeature),
            (json!({"type": "cloud", "limits": {"processes": 0}}), Code::InvalidField),
            (json!({}), Code::MissingField),
        ] {
            assert_eq!(create(json!({"name": "e", "config": config})), Err(code), "{config}");
        }
        assert_eq!(create(json!({})), Err(Code::MissingField));
    }
}
