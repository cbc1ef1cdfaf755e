//! A queue of files in a folder: a job is taken by renaming it, and acknowledged by deleting it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adieu::{Outcome, Source};

pub(crate) struct Queue {
    folder: PathBuf,
}

/// How many jobs are taken at a time.
const BATCH: usize = 3;

impl Queue {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder.join("taken"))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn taken(&self, job: &str) -> PathBuf {
        self.folder.join("taken").join(job)
    }

    fn requeue(&self, job: &str) -> io::Result<()> {
        std::fs::rename(self.taken(job), self.folder.join(job))
    }
}

impl Source for Queue {
    type Job = String;
    type Error = io::Error;

    async fn take(&mut self) -> io::Result<Option<Vec<String>>> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut jobs = Vec::new();
        for entry in std::fs::read_dir(&self.folder)?.take(BATCH + 1) {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let job = entry.file_name().to_string_lossy().into_owned();
                std::fs::rename(entry.path(), self.taken(&job))?;
                jobs.push(job);
            }
        }
        Ok(Some(jobs))
    }

    async fn done(&mut self, job: &String, outcome: &Outcome) -> io::Result<()> {
        if *outcome == Outcome::Finished {
            return std::fs::remove_file(self.taken(job));
        }
        self.requeue(job)
    }

    async fn on_interrupted(&mut self, job: &String) -> io::Result<()> {
        self.requeue(job)
    }

    async fn release(&mut self, jobs: Vec<String>) -> io::Result<()> {
        jobs.iter().try_for_each(|job| self.requeue(job))
    }
}
