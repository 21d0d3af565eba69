//! What the persistent shell promises, in every driver.

use crate::machine::{Folders, drivers, output};

#[tokio::test]
async fn working_directory_and_environment_persist_between_commands() {
    for driver in drivers().await {
        let folders = Folders::new();
        let sandbox = driver.start(folders.spec()).await.expect("start");
        assert_eq!(output(&sandbox, "mkdir -p a/b && cd a/b && export X='1 2'").await, "");
        assert_eq!(output(&sandbox, "pwd | tail -c 5; echo $X").await, "/a/b\n1 2\n");
        sandbox.stop().await;
    }
}
