//! Holds what depends on what: no layer uses another one, and the library stays light.

#![expect(clippy::unwrap_used, reason = "helpers of tests, in a file that has nothing else")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

#[path = "layout/uses.rs"]
mod uses;

/// What layers are built on. These do not know of any layer.
const CORE: [&str; 9] = ["body", "buffer", "call", "error", "handoff", "json", "leg", "settle", "trtllm"];
const LAYERS: [&str; 8] =
    ["cancel", "contract", "context", "conversation", "generation", "mint", "respond", "terminal"];
/// May use everything.
const ASSEMBLY: [&str; 1] = ["stack"];
/// Used by tests only.
const KIT: &str = "test_util";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The modules of the crate that `module` may use, beside itself.
fn may_use(module: &str, other: &str) -> bool {
    module == other
        || ASSEMBLY.contains(&module) && other != KIT
        || CORE.contains(&other) && (CORE.contains(&module) || LAYERS.contains(&module))
        || module == KIT && other == "error"
}

/// The source files below `folder` that are no tests, each with the module of the crate that it belongs to.
fn sources(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(folder).unwrap();
                let first = inside.iter().next().unwrap().to_str().unwrap();
                found.push((first.trim_end_matches(".rs").to_owned(), path));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_module_has_its_place() {
    let known: BTreeSet<&str> = CORE.into_iter().chain(LAYERS).chain(ASSEMBLY).chain([KIT, "lib"]).collect();
    let found: BTreeSet<String> = sources(&here("src")).into_iter().map(|(module, _)| module).collect();
    assert_eq!(
        found.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        known,
        "say in this file what it may use"
    );
}

#[test]
fn layers_use_the_core_and_no_other_layer() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (module, path) in sources(&here("src")) {
        if module == "lib" {
            continue;
        }
        let inside = path.strip_prefix(here("src")).unwrap();
        for (line, other) in
            uses::of_the_crate(&fs::read_to_string(&path).unwrap(), &uses::module_path(inside))
        {
            seen += 1;
            if !may_use(&module, &other) {
                wrong.push(format!("{}:{line}: `{module}` must not use `{other}`", path.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} uses were found: is the reader broken?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// === packages ===

fn table(path: &str) -> Table {
    fs::read_to_string(here(path)).unwrap().parse().unwrap()
}

/// A dependency, by the name of its package.
struct Dependency {
    package: String,
    optional: bool,
    features: Vec<String>,
}

/// The dependencies of the library that are not for tests only, also those for some targets only.
fn dependencies() -> Vec<Dependency> {
    let (manifest, workspace) = (table("Cargo.toml"), table("../Cargo.toml"));
    let shared = &workspace["workspace"]["dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let parts = targets.filter_map(|(_, target)| target.as_table()).chain([&manifest]);
    let mut found = Vec::new();
    for part in parts {
        for kind in ["dependencies", "build-dependencies"] {
            let own = part.get(kind).and_then(Value::as_table).into_iter().flatten();
            found.extend(own.map(|(name, own)| dependency(name, own, shared)));
        }
    }
    found
}

fn dependency(name: &str, own: &Value, shared: &Value) -> Dependency {
    let inherited = own.get("workspace").and_then(Value::as_bool) == Some(true);
    let shared = if inherited { shared.get(name) } else { None };
    let parts = [Some(own), shared];
    let renamed = parts.into_iter().flatten().find_map(|part| part.get("package")?.as_str());
    let features = parts.into_iter().flatten().filter_map(|part| part.get("features")?.as_array()).flatten();
    Dependency {
        package: renamed.unwrap_or(name).to_owned(),
        optional: own.get("optional").and_then(Value::as_bool) == Some(true),
        features: features.map(|feature| feature.as_str().unwrap().to_owned()).collect(),
    }
}

/// What the packages of `Cargo.lock` need, by name. Of packages from a registry it lists nothing that is for their
/// tests only.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let mut locked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in table("../Cargo.lock")["package"].as_array().unwrap() {
        let needs = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        // "name", or "name version" where there are several.
        let needs = needs.map(|need| need.as_str().unwrap().split(' ').next().unwrap().to_owned());
        locked.entry(package["name"].as_str().unwrap().to_owned()).or_default().extend(needs);
    }
    locked
}

#[test]
fn the_library_needs_what_it_says_and_nothing_else() {
    let allowed = [
        "bytes",
        "getrandom",
        "http",
        "http-body",
        "http-body-util",
        "metrics",
        "pin-project",
        "serde",
        "serde_json",
        "tokio",
        "tower-layer",
        "tower-service",
        "tracing",
    ];
    let found = dependencies();
    let needed: BTreeSet<&str> = found.iter().filter(|it| !it.optional).map(|it| &*it.package).collect();
    assert_eq!(needed, BTreeSet::from(allowed));
    let optional: Vec<&str> = found.iter().filter(|it| it.optional).map(|it| &*it.package).collect();
    assert_eq!(optional, ["hmac", "sha2", "tower"]);

    let tokio = found.iter().find(|it| it.package == "tokio").unwrap();
    let features: BTreeSet<&str> = tokio.features.iter().map(String::as_str).collect();
    assert_eq!(features, BTreeSet::from(["rt", "sync", "time"]));
}

#[test]
fn nothing_that_the_library_needs_brings_an_http_implementation_along() {
    let locked = locked();
    let mut open: Vec<String> =
        dependencies().into_iter().filter(|it| !it.optional).map(|it| it.package).collect();
    let mut needed = BTreeSet::new();
    while let Some(package) = open.pop() {
        let needs = locked.get(&package).unwrap_or_else(|| panic!("`{package}` is not in Cargo.lock"));
        open.extend(needs.iter().filter(|need| !needed.contains(*need)).cloned());
        needed.insert(package);
    }
    assert!(
        needed.contains("http-body") && needed.contains("pin-project-lite"),
        "is the reader broken? {needed:?}"
    );
    for heavy in
        ["hyper", "hyper-util", "h2", "tower", "tower-http", "axum", "reqwest", "clap", "rustls", "openssl"]
    {
        assert!(!needed.contains(heavy), "`{heavy}` is needed");
    }
}

#[test]
fn what_is_optional_is_off_unless_asked_for() {
    let manifest = table("Cargo.toml");
    let features = manifest["features"].as_table().unwrap();
    let list = |name: &str| {
        features[name].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(list("default"), [""; 0]);
    assert_eq!(list("test-util"), [""; 0]);
    assert_eq!(list("hmac"), ["dep:hmac", "dep:sha2"]);
    assert_eq!(list("tower"), ["dep:tower"]);
    assert_eq!(features.len(), 4, "say here what the new one brings along");
}
