//! Keys, origins, hosts and proxies: who may call.

use super::*;

#[test]
fn ws_auth_reads_the_option_before_the_variable() {
    for name in ["RUNNER_WEBSOCKET_AUTH", "PIPECAT_WEBSOCKET_AUTH"] {
        assert!(served(&[], &[(name, "token")]).0.ws_tokens);
        assert!(!served(&["--ws-auth=none"], &[(name, "token")]).0.ws_tokens);
        assert!(served(&["--ws-auth", "token"], &[(name, "none")]).0.ws_tokens);
        assert!(refused_with(&[], &[(name, "yes")]).contains(name));
    }
    assert!(!config(&[]).ws_tokens);
}

///
#[test]
fn origins_read_the_option_before_the_variable() {
    let variable = [("PIPECAT_ALLOWED_ORIGINS", "https://v.net, https://w.net")];
    let (config, _) = served(&[], &variable);
    assert_eq!(config.allowed_origins, ["https://v.net", "https://w.net"]);
    let arguments = [
        "--allowed-origins",
        "https://A.net,https://b.net",
        "https://c.net",
        "--allowed-origins=https://a.net",
    ];
    let (config, _) = served(&arguments, &variable);
    assert_eq!(
        config.allowed_origins,
        ["https://a.net", "https://b.net", "https://c.net"]
    );
    assert!(
        served(&[], &[("RUNNER_ALLOWED_ORIGINS", "  ")])
            .0
            .allowed_origins
            .is_empty()
    );
    // An invalid list must not allow every origin.
    for bad in ["", ",", "*", "a.net", "https://a.net/page"] {
        assert!(refused(&["--allowed-origins", bad]).contains("allow all"), "{bad:?}");
    }
    assert!(refused_with(&[], &[("RUNNER_ALLOWED_ORIGINS", "*")]).contains("RUNNER_ALLOWED_ORIGINS"));
}

#[test]
fn host_names_are_of_the_machine_and_the_option() {
    assert_eq!(config(&[]).host_names, ["board", "board.lan"]);
    let given = config(&["--allowed-hosts", "Bot.Example.net.,b.example", "board"]);
    assert_eq!(given.host_names, ["b.example", "board", "board.lan", "bot.example.net"]);
    for bad in ["http://a", "a:80", "a b"] {
        assert!(refused(&["--allowed-hosts", bad]).contains("--allowed-hosts"), "{bad}");
    }
}

#[test]
fn trusted_proxies_are_networks() {
    assert!(config(&[]).trusted_proxies.is_empty());
    let networks = |list: &[&str]| -> Vec<_> { list.iter().map(|text| text.parse().expect("a network")).collect() };
    let given = config(&["--trusted-proxies", "10.0.0.1,192.0.2.0/24", "2001:db8::/32"]);
    assert_eq!(
        given.trusted_proxies,
        networks(&["10.0.0.1", "192.0.2.0/24", "2001:db8::/32"])
    );
    let (set, _) = served(&[], &[("RUNNER_TRUSTED_PROXIES", "10.0.0.1, 10.0.0.2")]);
    assert_eq!(set.trusted_proxies, networks(&["10.0.0.1", "10.0.0.2"]));
    for bad in ["proxy", "10.0.0.0/33", "10.0.0.1:80"] {
        assert!(refused(&["--trusted-proxies", bad]).contains("ADDRESS/BITS"), "{bad}");
    }
    let of = |count: usize| vec!["10.0.0.1"; count].join(",");
    let most = crate::limits::TRUSTED_PROXIES_MAX;
    assert_eq!(config(&["--trusted-proxies", &of(most)]).trusted_proxies.len(), most);
    assert!(refused(&["--trusted-proxies", &of(most + 1)]).contains("at most 64 networks"));
}

/// the key comes from the option, a file or a variable. No error contains it.
#[test]
fn reads_the_api_key_from_one_place() {
    let key = |arguments: &[&str], variables: &[(&str, &str)]| served(arguments, variables).0.api_key.expect("a key");
    let long = "k".repeat(512);
    let variable = [("RUNNER_API_KEY", "variable-is-this-one")];
    assert_eq!(key(&[], &variable).expose(), "variable-is-this-one");
    assert_eq!(
        key(&["--api-key", "sixteen-letters!"], &variable).expose(),
        "sixteen-letters!"
    );
    assert_eq!(key(&["--api-key", &long], &[]).expose(), long);
    assert_eq!(key(&["--api-key-file", "key"], &variable).expose(), "0123456789abcdef");
    assert!(config(&[]).api_key.is_none());
    // One that the runner made gives way to one that somebody gave.
    let made = [("RUNNER_API_KEY_FILE", "auto"), ("STATE_DIRECTORY", "/state")];
    assert_eq!(key(&[], &made).expose(), "kept-in-the-folder");
    assert_eq!(
        key(&[], &[made[0], made[1], variable[0]]).expose(),
        "variable-is-this-one"
    );
    assert_eq!(key(&["--api-key-file", "key"], &made).expose(), "0123456789abcdef");
    assert!(
        served(&[], &[("RUNNER_API_KEY_FILE", " "), made[1]])
            .0
            .api_key
            .is_none()
    );
    assert!(refused(&["--api-key-file", "auto"]).contains("set --state-dir"));
    assert!(refused(&["--api-key-file", "auto", "--state-dir", "/full"]).contains("/full/api-key"));
    // The key does not protect WebSockets, which is easy to overlook.
    let warnings = |more: &[&str]| served(&[&["--api-key", "sixteen-letters!"], more].concat(), &[]).1;
    assert!(warnings(&[])[0].contains("--ws-auth token"));
    assert!(warnings(&["--ws-auth", "token"]).is_empty());
    assert!(refused(&["--api-key-file", "absent"]).contains("`--api-key-file`: reading the file that it names: "));
    assert!(refused(&["--api-key", &long, "--api-key-file", "key"]).contains("one of them"));
    for bad in [
        "fifteen-letters",
        &"k".repeat(513),
        "with a space in it",
        "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
    ] {
        let message = refused(&["--api-key", bad]);
        assert!(message.contains("16 to 512") && !message.contains(bad), "{message}");
    }
}

/// D-22: a replica has a key of a file, and a name. No error contains the key.
#[test]
fn reads_the_cluster_key_from_a_file() {
    let cluster = |arguments: &[&str]| config(arguments).cluster.expect("a key");
    let unnamed = cluster(&["--cluster-key-file", "cluster"]);
    let expected = ClusterKey::new(Secret::new("0123456789abcdef0123456789abcdef"));
    assert_eq!((&unnamed.key, &unnamed.replica_name), (&expected, &None));
    assert_eq!(unnamed.key_file, std::path::Path::new("cluster"));
    let named = cluster(&["--cluster-key-file", "cluster", "--replica-name", "eu-1_b"]);
    assert_eq!(named.replica_name.as_deref(), Some("eu-1_b"));
    let variables = [("RUNNER_CLUSTER_KEY_FILE", "cluster"), ("RUNNER_REPLICA_NAME", "c")];
    let by_variables = served(&[], &variables).0.cluster.expect("a key");
    assert_eq!(by_variables.replica_name.as_deref(), Some("c"));
    assert!(config(&[]).cluster.is_none());
    let short = refused(&["--cluster-key-file", "key"]);
    assert!(short.contains("32 to 512") && !short.contains("abcdef"), "{short}");
    assert!(
        refused(&["--cluster-key-file", "absent"]).contains("`--cluster-key-file`: reading the file that it names: ")
    );
    assert!(refused(&["--replica-name", "a"]).contains("--cluster-key-file"));
    for bad in ["", "a.b", "a b", "\u{e9}", &"n".repeat(33)] {
        let message = refused(&["--cluster-key-file", "cluster", "--replica-name", bad]);
        assert!(message.contains("1 to 32 letters"), "{message}");
    }
}

#[test]
fn the_state_folder_follows_systemd_and_xdg() {
    let folder = |arguments: &[&str], variables: &[(&str, &str)]| served(arguments, variables).0.state_dir;
    let home = ("HOME", "/home/ann");
    assert_eq!(folder(&[], &[]), None);
    assert_eq!(folder(&[], &[home]), Some("/home/ann/.local/state/edge-runner".into()));
    let xdg = ("XDG_STATE_HOME", "/state");
    assert_eq!(folder(&[], &[home, xdg]), Some("/state/edge-runner".into()));
    let systemd = ("STATE_DIRECTORY", "/var/lib/edge-runner:/var/lib/other");
    assert_eq!(folder(&[], &[home, xdg, systemd]), Some("/var/lib/edge-runner".into()));
    assert_eq!(folder(&["--state-dir", "/s"], &[systemd]), Some("/s".into()));
    assert!(refused(&["--tls", "auto"]).contains("--state-dir"));
    assert_eq!(config(&["--tls", "auto", "--state-dir", "/s"]).tls, Tls::Auto);
}
