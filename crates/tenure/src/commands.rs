//! One command per file.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod approve;
pub(crate) mod bench;
pub(crate) mod budget;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod conditions;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod cp;
pub(crate) mod demo;
pub(crate) mod deny;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod environments;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod version;
pub(crate) mod why;
pub(crate) mod workbench;
pub(crate) mod worker;
