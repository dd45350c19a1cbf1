//! Files for the owner's eyes alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Whole or not at all, and on disk once this returns. What is there already is replaced.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    // One that was left behind may be anybody's, or a link to somewhere else.
    match fs::remove_file(&draft) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    rename(&draft, path)
}

/// The mode of a directory that others than its owner can use; `None` if they cannot, or there are no such modes.
#[cfg(unix)]
pub(crate) fn open_to_others(directory: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(directory).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(crate) fn open_to_others(_: &Path) -> Option<u32> {
    None
}

/// Puts one file in another's place, on disk once this returns.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    // A name is on disk when its directory is. Elsewhere a directory cannot be opened.
    #[cfg(unix)]
    File::open(to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_secret_is_never_written_into_what_somebody_else_has_put_there() {
        let directory = tempfile::tempdir().unwrap();
        let (path, draft) = (directory.path().join("master.key"), directory.path().join("master.new"));
        let elsewhere = directory.path().join("elsewhere");
        symlink(&elsewhere, &draft).unwrap();
        write(&path, "secret").unwrap();
        assert!(!elsewhere.exists(), "a link is not followed");
        fs::write(&draft, "left behind").unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o666)).unwrap();
        // Somebody who has it open would read along.
        let mut spy = File::open(&draft).unwrap();
        write(&path, "another").unwrap();
        assert_eq!(io::read_to_string(&mut spy).unwrap(), "left behind");
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_is_private_if_nobody_else_can_use_it() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o700, None), (0o755, Some(0o755)), (0o710, Some(0o710))] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(directory.path()), expected);
        }
    }
}
