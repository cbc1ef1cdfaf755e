//! Substitutions of HOCON: the variables that they take, and the limits of what they become.

use std::time::Duration;

use adieu_core::{Config, Format};

#[test]
fn s820_text_whose_substitutions_become_too_large_is_an_error() {
    let levels = |first: &str, level: &dyn Fn(usize) -> String| {
        (1..12).fold(format!("{first}\n"), |text, n| text + &level(n) + "\n")
    };
    let times = |part: String| part.repeat(10);
    let bombs = [
        levels("a0 = xxxxxxxxxx", &|n| format!("a{n} = {}", times(format!("${{a{}}}", n - 1)))),
        levels("a0 = [1]", &|n| format!("a{n} = {}", times(format!("${{a{}}} ", n - 1)))),
        levels("a0 = 1", &|n| format!("a{n} = [{}]", times(format!("${{a{}}}, ", n - 1)))),
        levels("", &|n| format!("a{n} = x{}", times(format!("${{?a{}}}", n - 1)))),
        levels("a0 { x = 1 }", &|n| {
            (0..10).map(|key| format!("a{n}.k{key} = ${{a{}}}\n", n - 1)).collect()
        }),
        format!("a = x\n{}", "a = ${a}${a}\n".repeat(100)),
        format!("a = [1]\n{}", "a += ${a}\n".repeat(100)),
        format!("a = x\nb = x\n{}", "a = ${b}${b}\nb = ${a}${a}\n".repeat(40)),
        format!("a {{ x = 1 }}\n{}", "a { x = ${a.x}${a.x} }\n".repeat(100)),
    ];
    for text in bombs {
        let problem = Config::parse(&text, Format::Hocon).unwrap_err().to_string();
        assert!(problem.contains("larger than 64 MiB"), "{problem}: {text}");
    }
    // A base that a hundred blocks extend, as in configurations of Akka.
    let base: String = (0..100).map(|n| format!("  key-{n} = value\n")).collect();
    let blocks: String = (0..100).map(|n| format!("b{n} = ${{base}} {{ own = {n} }}\n")).collect();
    let path = "path = a\npath = ${path}\":b\"\npath = ${?path}\":c\"\n";
    let text = format!("akka {{}}\nbase {{\n{base}}}\n{blocks}{path}");
    let _ = Config::parse(&text, Format::Hocon).unwrap();
}

#[test]
fn s820_included_files_have_the_same_limits() {
    let folder = std::env::temp_dir().join(format!("adieu-s820-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let problem =
        |path: &std::path::Path| Config::read_with_vars(path, []).unwrap_err().to_string();
    let itself = file("itself.conf", "include \"./itself.conf\"");
    assert!(problem(&itself).contains("included more than 8 deep"), "{}", problem(&itself));
    let levels: String =
        (1..12).map(|n| format!("a{n} = {}\n", format!("${{a{}}}", n - 1).repeat(10))).collect();
    let _ = file("bomb.conf", &levels);
    let outer = file("outer.conf", "a0 = x\ninclude \"bomb\"");
    assert!(problem(&outer).contains("larger than 64 MiB"), "{}", problem(&outer));
    let device = file("device.conf", "include \"/dev/zero\"\ninclude file(\"/dev/./zero.conf\")");
    let _ = Config::read_with_vars(&device, []).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.conf")).unwrap();
    let device = file("device.conf", "include \"zero.conf\"");
    assert!(problem(&device).contains("not a regular file"), "{}", problem(&device));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn s821_substitutions_take_only_the_given_variables() {
    let text = "drain-timeout = 7s\ndrain-timeout = ${?DRAIN}\nreport-file = ${?HOME}";
    let vars = [("DRAIN".to_owned(), "9s".to_owned())];
    let with = |vars| Config::parse_with_vars(text, Format::Hocon, vars).unwrap();
    assert_eq!(with(vars.to_vec()), Config::new().drain_timeout(Duration::from_secs(9)));
    assert_eq!(with(Vec::new()), Config::new().drain_timeout(Duration::from_secs(7)));
    assert_eq!(Config::variables_of(text, Format::Hocon).unwrap(), ["DRAIN", "HOME"]);
    assert_eq!(Config::variables_of("a = \"${A}\"", Format::Toml).unwrap(), [""; 0]);
    let text = "a { b = 1 }\nc = ${a.b} ${?X} ${a}\nd = ${?LIST[]}";
    assert_eq!(Config::variables_of(text, Format::Hocon).unwrap(), ["LIST", "LIST_0", "X"]);
    assert!(Config::parse("drain-timeout = ${DRAIN}", Format::Hocon).is_err());
}
