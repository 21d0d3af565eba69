//! The configured providers, and which of them a name means.

use crate::client::{HttpModel, Provider};
use crate::config::{DialectName, ProviderConfig};
use crate::model::{ConfigProblem, Model, Models, Resolved};
use crate::script::{Library, ScriptModel};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Most output tokens per call where nothing is configured.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u32 = 16_384;

/// The provider that exists without configuration.
const SCRIPT: &str = "script";

/// The configured providers.
#[derive(Debug)]
pub struct Providers {
    providers: BTreeMap<String, Arc<Provider>>,
    libraries: BTreeMap<String, Arc<Library>>,
    default: Option<String>,
}

impl Providers {
    /// Takes the `[providers]` table and `[models] default`.
    ///
    /// # Errors
    /// When a provider cannot work as it is configured.
    pub fn new(configs: BTreeMap<String, ProviderConfig>, default: Option<String>) -> Result<Self, ConfigProblem> {
        let mut providers = BTreeMap::new();
        for (name, config) in configs {
            check(&name, &config)?;
            providers.insert(name.clone(), Arc::new(Provider::new(name, config)));
        }
        providers
            .entry(SCRIPT.to_owned())
            .or_insert_with(|| Arc::new(Provider::new(SCRIPT.to_owned(), ProviderConfig::new(DialectName::Script))));
        let libraries = providers
            .iter()
            .filter(|(_, provider)| provider.config.dialect == DialectName::Script)
            .map(|(name, provider)| (name.clone(), Arc::new(Library::new(provider.config.scenarios.clone()))))
            .collect();
        Ok(Self { providers, libraries, default })
    }

    /// No configured provider; `script` plays the scenarios of this folder.
    pub fn scripted(scenarios: Option<PathBuf>) -> Self {
        let config = ProviderConfig { scenarios, ..ProviderConfig::new(DialectName::Script) };
        let library = Arc::new(Library::new(config.scenarios.clone()));
        Self {
            providers: BTreeMap::from([(SCRIPT.to_owned(), Arc::new(Provider::new(SCRIPT.to_owned(), config)))]),
            libraries: BTreeMap::from([(SCRIPT.to_owned(), library)]),
            default: None,
        }
    }

    /// The configured default model.
    pub fn default_model(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The names of the providers, `script` included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    fn find<'a>(&'a self, name: &'a str) -> Result<(&'a Arc<Provider>, &'a str), ConfigProblem> {
        if let Some((provider, model)) = name.split_once('/')
            && let Some(provider) = self.providers.get(provider)
            && !model.is_empty()
        {
            return Ok((provider, model));
        }
        let lists = |provider: &&Arc<Provider>| {
            let config = &provider.config;
            config.prices.contains_key(name) || config.models.iter().any(|model| model == name)
        };
        if let Some(provider) = self.providers.values().find(lists) {
            return Ok((provider, name));
        }
        let speaks = |dialect| self.providers.values().filter(move |provider| provider.config.dialect == dialect);
        let by_name = match name {
            _ if name.starts_with("claude") => speaks(DialectName::Anthropic).next(),
            _ if name.starts_with("gpt-") => {
                speaks(DialectName::OpenAi).next().or_else(|| speaks(DialectName::Responses).next())
            }
            _ if name.starts_with("gemini") => speaks(DialectName::Gemini).next(),
            _ => None,
        };
        let mut real = self.providers.values().filter(|provider| provider.config.dialect != DialectName::Script);
        let only = match (real.next(), real.next(), name.contains('/')) {
            (Some(only), None, false) => Some(only),
            _ => None,
        };
        by_name.or(only).map(|provider| (provider, name)).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> ConfigProblem {
        let known = self.names().collect::<Vec<_>>().join(", ");
        ConfigProblem {
            code: "model_unknown",
            message: format!("no provider is configured for the model {name:?}"),
            hint: format!(
                "write it as PROVIDER/MODEL with one of these providers: {known}; or add a [providers.NAME] table to the configuration"
            ),
        }
    }
}

impl Models for Providers {
    fn resolve(&self, name: &str) -> Result<Resolved, ConfigProblem> {
        let name = match (name.trim(), &self.default) {
            ("" | "default", Some(default)) => default.as_str(),
            (name, _) => name,
        };
        let (provider, model_name) = self.find(name)?;
        let full_name = format!("{}/{model_name}", provider.name);
        // A scenario has no key: it shares nothing with others of its provider.
        let credential = match provider.config.dialect {
            DialectName::Script => full_name.clone(),
            _ => provider.name.clone(),
        };
        let model: Arc<dyn Model> = match provider.config.dialect {
            DialectName::Anthropic
            | DialectName::OpenAi
            | DialectName::Responses
            | DialectName::Gemini
            | DialectName::Ollama => {
                let timeouts = provider.config.timeouts(model_name);
                Arc::new(HttpModel::new(provider.clone(), full_name.clone(), timeouts))
            }
            DialectName::Script => {
                let library = self.libraries.get(&provider.name).expect("every script provider has a library");
                Arc::new(ScriptModel::new(library.scenario(model_name)?, full_name.clone()))
            }
        };
        Ok(Resolved {
            model,
            full_name,
            credential,
            model_name: model_name.to_owned(),
            price: provider.config.price(model_name),
            max_output_tokens: provider.config.max_output_tokens.unwrap_or(DEFAULT_MAX_OUTPUT_TOKENS),
            facts: provider.config.facts(model_name),
        })
    }
}

fn check(name: &str, config: &ProviderConfig) -> Result<(), ConfigProblem> {
    let problem = |message: String, hint: &str| {
        Err(ConfigProblem {
            code: "provider_invalid",
            message: format!("[providers.{name}] {message}"),
            hint: hint.to_owned(),
        })
    };
    if name.is_empty() || name.contains('/') {
        return problem(
            "has a name that cannot stand before the / of a model".to_owned(),
            "use letters, digits and dashes",
        );
    }
    if let Some(url) = &config.base_url {
        let is_http =
            reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_http {
            return problem(
                format!("base_url {url:?} is not an http or https address"),
                "write for example base_url = \"https://gateway.example.com/v1\"",
            );
        }
    }
    if let Some((model, _)) = config.model_timeouts.iter().find(|(_, timeouts)| timeouts.connect.is_some()) {
        return problem(
            format!("has a time limit to connect for the model {model:?}; connections belong to the provider"),
            "write it as timeouts = { connect = \"10s\" }",
        );
    }
    if config.api_key_env.is_some() && config.api_key_file.is_some() {
        return problem("has both api_key_env and api_key_file".to_owned(), "keep one of them");
    }
    Ok(())
}
