//! A command of an operator to a page of the admin port, and why it failed.

/// A command of an operator: the last part of the path, and the arguments in the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    name: String,
    arguments: Vec<(String, String)>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The arguments are not valid. The caller has to change them.
    #[error("{0}")]
    Invalid(String),
    /// The command is not possible in the current state.
    #[error("{0}")]
    Refused(String),
    /// The command failed. It may succeed later.
    #[error("{0}")]
    Failed(String),
}

// === impl Command ===

impl Command {
    /// Reads the arguments of a command from the query of a request, which may be percent-encoded.
    #[must_use]
    pub fn new(name: impl Into<String>, query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let arguments = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self { name: name.into(), arguments: arguments.collect() }
    }

    /// Returns the name of the command.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the first argument of this name.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        let found = self.arguments.iter().find(|(argument, _)| argument == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the argument of this name.
    ///
    /// # Errors
    ///
    /// If it is missing or empty, or there are several.
    pub fn required(&self, name: &str) -> Result<&str, CommandError> {
        let count = self.arguments.iter().filter(|(argument, _)| argument == name).count();
        if count > 1 {
            let several = format!("{} needs one ?{name}=…, and has {count}", self.name);
            return Err(CommandError::invalid(several));
        }
        let missing = || CommandError::invalid(format!("{} needs ?{name}=…", self.name));
        self.argument(name).filter(|value| !value.is_empty()).ok_or_else(missing)
    }
}

// === impl CommandError ===

impl CommandError {
    /// Creates the error for arguments that are not valid.
    pub fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid(problem.into())
    }

    /// Creates the error for a command that is not possible in the current state.
    pub fn refused(problem: impl Into<String>) -> Self {
        Self::Refused(problem.into())
    }

    /// Creates the error for a command that failed.
    pub fn failed(problem: impl Into<String>) -> Self {
        Self::Failed(problem.into())
    }
}

/// Decodes a part of a query. A `%` that does not begin a byte stands for itself.
fn decoded(text: &str) -> String {
    let mut bytes = text.as_bytes().iter();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        let digits = bytes.as_slice().get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        plain.push(match (byte, digits.and_then(hex)) {
            (b'%', Some(encoded)) => {
                bytes.nth(1);
                encoded
            }
            (b'+', _) => b' ',
            _ => byte,
        });
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Reads two hexadecimal digits. `from_str_radix` alone would also accept a sign.
fn hex(digits: &str) -> Option<u8> {
    let all_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    all_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_decoded() {
        let command =
            Command::new("leave", Some("node=shop%2d2&key=a%20b+c%C3%A4&flag&x=%zz%+1%4"));
        assert_eq!(command.name(), "leave");
        assert_eq!(command.argument("node"), Some("shop-2"));
        assert_eq!(command.argument("key"), Some("a b cä"));
        assert_eq!(command.argument("flag"), Some(""));
        assert_eq!(command.argument("x"), Some("%zz% 1%4"));
        assert_eq!(command.argument("other"), None);
        let missing = command.required("flag").unwrap_err();
        assert_eq!(missing.to_string(), "leave needs ?flag=…");
        assert_eq!(Command::new("stop", None).argument(""), None);
    }

    #[test]
    fn an_argument_that_is_required_once_is_not_given_twice() {
        let command = Command::new("leave", Some("node=shop-1&node=shop-2"));
        let several = command.required("node").unwrap_err();
        assert_eq!(several.to_string(), "leave needs one ?node=…, and has 2");
    }
}
