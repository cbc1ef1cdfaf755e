//! The options of `docker run` and `podman run`.
//!
//! Whether an option takes a value decides which word is the image. So an option that is not listed
//! here makes all that follows it unknown.

use super::script::Word;

/// Options without a value.
const SWITCHES: &str = "\
    --detach --interactive --tty --rm --init --privileged --read-only --publish-all \
    --no-healthcheck --oom-kill-disable --sig-proxy --quiet --replace --tls-verify \
    --disable-content-trust --no-hosts --no-hostname --read-only-tmpfs --rmi --env-host --rootfs \
    --passwd --unsetenv-all --use-api-socket --http-proxy --remove-signatures";

/// Options with a value.
const VALUED: &str = "\
    --add-host --annotation --arch --attach --authfile --blkio-weight --blkio-weight-device \
    --cap-add --cap-drop --cgroup-conf --cgroup-parent --cgroupns --cgroups --chrootdirs --cidfile \
    --conmon-pidfile --cpu-count --cpu-percent --cpu-period --cpu-quota --cpu-rt-period \
    --cpu-rt-runtime --cpu-shares --cpus --cpuset-cpus --cpuset-mems --creds --decryption-key \
    --detach-keys --device --device-cgroup-rule --device-read-bps --device-read-iops \
    --device-write-bps --device-write-iops --dns --dns-opt --dns-option --dns-search --domainname \
    --entrypoint --env --env-file --env-merge --expose --gidmap --gpus --group-add --group-entry \
    --health-cmd --health-interval --health-log-destination --health-max-log-count \
    --health-max-log-size --health-on-failure --health-retries --health-start-interval \
    --health-start-period --health-startup-cmd --health-startup-interval --health-startup-retries \
    --health-startup-success --health-startup-timeout --health-timeout --hooks-dir --hostname \
    --hostuser --image-volume --init-path --io-maxbandwidth --io-maxiops --ip --ip6 --ipc \
    --isolation --kernel-memory --label --label-file --link --link-local-ip --log-driver --log-level \
    --log-opt --mac-address --memory --memory-reservation --memory-swap --memory-swappiness --mount \
    --name --net --network --network-alias --oom-score-adj --os --passwd-entry --personality --pid \
    --pidfile --pids-limit --platform --pod --pod-id-file --preserve-fd --preserve-fds --publish \
    --pull --rdt-class --requires --restart --retry --retry-delay --runtime --sdnotify \
    --seccomp-policy --secret --security-opt --shm-size --shm-size-systemd --stop-signal \
    --stop-timeout --storage-opt --subgidname --subuidname --sysctl --systemd --timeout --tmpfs --tz \
    --uidmap --ulimit --umask --unsetenv --user --userns --uts --variant --volume --volume-driver \
    --volumes-from --workdir";

/// Letters of options, by whether they take a value.
const SWITCH_LETTERS: &str = "ditPq";
const VALUED_LETTERS: &str = "acehlmpuvw";

/// The options, image and command of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Options in order, letters written out where that matters; `true` for switches.
    values: Vec<(String, Word)>,
    pub(crate) image: String,
    pub(crate) command: Vec<Word>,
    /// The first word that is not understood. The words after it are not read.
    pub(crate) odd: Option<String>,
}

/// Reads the words after `run`.
pub(crate) fn read(words: &[Word]) -> Flags {
    let mut flags = Flags::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        // No option has a colon or a slash after a variable: this is an image.
        let is_image = word.is_one && text.contains([':', '/']);
        if !word.is_known && !text.starts_with('-') && !is_image || text == "-" {
            flags.odd = Some(if text.is_empty() { "a variable".into() } else { text.into() });
            break;
        }
        if text == "--" {
            continue;
        }
        if !text.starts_with('-') {
            flags.image.clone_from(&word.text);
            flags.command = words.cloned().collect();
            break;
        }
        let taken = match text.starts_with("--") {
            true => flags.long(word, &mut words),
            false => flags.letters(word, &mut words),
        };
        if taken.is_none() {
            flags.odd = Some(text.into());
            break;
        }
    }
    flags
}

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|one| one == name)
}

// === impl Flags ===

impl Flags {
    /// Returns the last value of an option, by its long name.
    pub(crate) fn value(&self, name: &str) -> Option<&Word> {
        self.values(name).last()
    }

    /// All values of an option, in order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &Word> {
        self.values.iter().filter(move |(found, _)| found == name).map(|(_, value)| value)
    }

    /// Returns whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| ["true", "1"].contains(&value.text.as_str()))
    }

    /// Returns whether a switch that is on unless it is set was switched off.
    pub(crate) fn is_off(&self, name: &str) -> bool {
        self.value(name).is_some_and(|value| ["false", "0"].contains(&value.text.as_str()))
    }

    fn long<'w>(&mut self, word: &Word, rest: &mut impl Iterator<Item = &'w Word>) -> Option<()> {
        let text = word.text.as_str();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if has(SWITCHES, name) || has(VALUED, name) => {
                (name, Word { text: value.into(), ..word.clone() })
            }
            None if has(SWITCHES, text) => (text, Word::known("true")),
            None if has(VALUED, text) => (text, rest.next()?.clone()),
            _ => return None,
        };
        self.values.push((name.into(), value));
        Some(())
    }

    /// `-d`, `-dp 80:80`, `-eNAME=value`.
    fn letters<'w>(
        &mut self,
        word: &Word,
        rest: &mut impl Iterator<Item = &'w Word>,
    ) -> Option<()> {
        for (at, letter) in word.text.char_indices().skip(1) {
            let after = &word.text[at + letter.len_utf8()..];
            let name = match letter {
                'd' => "--detach",
                't' => "--tty",
                'e' => "--env",
                'v' => "--volume",
                _ => "",
            };
            let name = if name.is_empty() { format!("-{letter}") } else { name.into() };
            if VALUED_LETTERS.contains(letter) {
                let value = match after.strip_prefix('=').unwrap_or(after) {
                    "" => rest.next()?.clone(),
                    value => Word { text: value.into(), ..word.clone() },
                };
                self.values.push((name, value));
                return Some(());
            }
            if !SWITCH_LETTERS.contains(letter) {
                return None;
            }
            if let Some(value) = after.strip_prefix('=') {
                self.values.push((name, Word::known(value)));
                return Some(());
            }
            self.values.push((name, Word::known("true")));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::script::split;

    #[test]
    fn s504_the_image_is_the_first_word_that_is_no_option_or_value() {
        for line in [
            "-d orders",
            "-dp 80:80 orders",
            "-dp80:80 orders",
            "-itd -e A=1 -eB=2 orders",
            "-de A=1 orders",
            "--use-api-socket orders",
            "--env-host --no-hostname --passwd orders",
            "--rm --init --stop-timeout 60 -v /a:/b --name=x orders",
            "--sig-proxy=false -- orders",
        ] {
            let words: Vec<_> = split(line).into_iter().map(Word::known).collect();
            let flags = read(&words);
            assert_eq!((flags.image.as_str(), flags.odd), ("orders", None), "{line}");
        }
        for line in ["--surprise orders", "-dz orders", "- orders"] {
            let words: Vec<_> = split(line).into_iter().map(Word::known).collect();
            let flags = read(&words);
            assert!(flags.image.is_empty() && flags.odd.is_some(), "{line}");
        }
        let flags = read(&[Word::known("-de"), Word::known("A=1"), Word::known("a")]);
        assert_eq!(
            flags.values("--env").map(|word| word.text.as_str()).collect::<Vec<_>>(),
            ["A=1"]
        );
        assert!(flags.is_on("--detach") && !flags.is_off("--detach"));
    }
}
