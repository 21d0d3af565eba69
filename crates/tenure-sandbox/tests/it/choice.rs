//! Which driver is taken.

use tenure_sandbox::{LAUNCHER_ARGUMENT, Launcher, strongest};

use crate::machine::{drivers, launcher};

#[tokio::test]
async fn z_49_the_process_driver_is_never_chosen_only_asked_for() {
    let working = drivers().await;
    match strongest(launcher()).await {
        Ok(choice) => {
            assert_eq!(Some(choice.driver.name()), working.first().map(|driver| driver.name()));
            assert_ne!(choice.driver.name(), "process");
        }
        Err(refused) => {
            assert_eq!(refused.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["namespace", "landlock"])
        }
    }
    // With a launcher that does not work nothing is left, and each reason is given.
    let broken = Launcher { program: "/bin/false".into(), arguments: vec![LAUNCHER_ARGUMENT.to_owned()] };
    let refused = strongest(broken).await.err().expect("no driver works");
    assert_eq!(refused.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["namespace", "landlock"]);
    assert!(refused.iter().all(|(_, why)| !why.is_empty()), "{refused:?}");
}
