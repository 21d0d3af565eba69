//! Recognises commands that failed because the sandbox has no network.

/// Words of common programs and libraries for "there is no network".
const SIGNS: [&str; 16] = [
    "could not resolve host",
    "network is unreachable",
    "temporary failure in name resolution",
    "temporary failure resolving",
    "name or service not known",
    "failed to resolve",
    "no route to host",
    "enotfound",
    "eai_again",
    "enetunreach",
    "nodename nor servname provided",
    "dns error",
    "failed to lookup address information",
    "no address associated with hostname",
    "unable to resolve host address",
    "getaddrinfo",
];

/// Says why, if the output looks like it.
pub(crate) fn network(head: &[u8], tail: &[u8]) -> Option<String> {
    let text = [String::from_utf8_lossy(head), String::from_utf8_lossy(tail)].join("\n").to_lowercase();
    SIGNS.iter().find(|sign| text.contains(**sign)).map(|sign| {
        format!(
            "the sandbox has no network (the output says {sign:?}); trying again will not help. \
             Work with what is installed, or ask for an environment with network = \"host\""
        )
    })
}
