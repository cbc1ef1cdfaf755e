//! The keys of supervisord, from its documentation. supervisord ignores other keys without a word.

use super::Keys;

/// Sections by their names, or by their prefixes.
pub(crate) static SECTIONS: [&str; 11] = [
    "DEFAULT",
    "eventlistener:",
    "fcgi-program:",
    "group:",
    "include",
    "inet_http_server",
    "program:",
    "rpcinterface:",
    "supervisorctl",
    "supervisord",
    "unix_http_server",
];

pub(crate) static PROGRAM: Keys = Keys::new(
    "a program",
    "command environment stopasgroup stopsignal stopwaitsecs",
    "autorestart autostart directory exitcodes killasgroup numprocs numprocs_start priority \
     process_name redirect_stderr serverurl socket socket_backlog socket_mode socket_owner \
     startretries startsecs stderr_capture_maxbytes stderr_events_enabled stderr_logfile \
     stderr_logfile_backups stderr_logfile_maxbytes stderr_syslog stdout_capture_maxbytes \
     stdout_events_enabled stdout_logfile stdout_logfile_backups stdout_logfile_maxbytes \
     stdout_syslog umask user",
);

pub(crate) static SUPERVISORD: Keys = Keys::new(
    "[supervisord]",
    "environment nodaemon",
    "childlogdir directory identifier logfile logfile_backups logfile_maxbytes loglevel minfds \
     minprocs nocleanup pidfile silent strip_ansi umask user",
);
