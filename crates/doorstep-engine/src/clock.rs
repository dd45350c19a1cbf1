//! The machine's clocks, and the schedule time that decisions are told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, fs};

use doorstep_core::clock::{Clock as Schedule, ClockChange, ClockRecord, KeptClock, Now, Reading, Timeline};
use doorstep_core::time::{Millis, Timestamp};

/// Nobody sleeps longer without looking at the clock again: timers do not count the time that a machine is suspended.
pub const NAP_MAX: Duration = Duration::from_secs(1);
/// Between reading the one clock and the other no more than this may pass, or they are read again.
const READ_WITHIN: Millis = Millis(20);
/// On a machine so busy that this never works out, the last reading has to do.
const READINGS_MAX: usize = 8;

type Read = dyn Fn() -> Reading + Send + Sync;

/// Shared by all who need the time: a clone is the same clock.
#[derive(Clone)]
pub struct Clock(Arc<Inner>);

struct Inner {
    read: Box<Read>,
    schedule: Mutex<Schedule>,
    /// How often the wall clock was followed somewhere else.
    changes: AtomicU64,
}

impl Clock {
    /// A clock without a past.
    pub fn start() -> Self {
        let (read, boot) = machine();
        let schedule = Schedule::new(&careful(&read), boot, None);
        Self::of(read, schedule)
    }

    /// Goes on where the last process left off, as far as the store knows.
    pub fn resume(kept: KeptClock) -> Self {
        let (read, boot) = machine();
        Self::resume_with(read, boot, kept)
    }

    /// The same with other clocks than the machine's. `boot` names what their `up` counts from.
    pub fn resume_with(
        read: impl Fn() -> Reading + Send + Sync + 'static,
        boot: Option<String>,
        KeptClock { record, newest }: KeptClock,
    ) -> Self {
        let reading = careful(&read);
        let Some(record) = record else { return Self::of(read, Schedule::new(&reading, boot, newest)) };
        let (schedule, change) = Schedule::resume(record, &reading, boot, newest);
        change.iter().for_each(tell);
        Self::of(read, schedule)
    }

    fn of(read: impl Fn() -> Reading + Send + Sync + 'static, schedule: Schedule) -> Self {
        Self(Arc::new(Inner { read: Box::new(read), schedule: Mutex::new(schedule), changes: AtomicU64::new(0) }))
    }

    /// Schedule time.
    pub fn now(&self) -> Timestamp {
        self.look().at
    }

    /// The wall clock's time.
    pub fn wall(&self) -> Timestamp {
        self.look().wall
    }

    /// Both at the same moment. A step of the wall clock is noticed here.
    pub fn look(&self) -> Now {
        self.with(|schedule, wall| Now { at: schedule.now(), wall })
    }

    /// How times that are kept are shown, and the other way round.
    pub fn timeline(&self) -> Arc<Timeline> {
        self.with(|schedule, _| Arc::clone(schedule.timeline()))
    }

    /// What the next process needs in order to go on from here.
    pub fn record(&self) -> ClockRecord {
        self.with(|schedule, wall| schedule.record(wall))
    }

    /// One more each time that the timeline has changed.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Returns when schedule time has come to this.
    pub async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = Duration::from_millis(at.since(self.now()).0);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(NAP_MAX)).await;
        }
    }

    /// The clocks are read inside the lock: whoever reads later tells later.
    fn with<T>(&self, look: impl FnOnce(&Schedule, Timestamp) -> T) -> T {
        let mut schedule = self.0.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reading = (self.0.read)();
        let change = if schedule.pass(&reading) {
            None
        } else {
            reading = careful(&self.0.read);
            let before = Arc::clone(schedule.timeline());
            let change = schedule.tell(&reading);
            if before != *schedule.timeline() {
                self.0.changes.fetch_add(1, Ordering::Relaxed);
            }
            change
        };
        let seen = look(&schedule, reading.wall);
        drop(schedule);
        change.iter().for_each(tell);
        seen
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Reads until two readings follow each other closely: the second one's wall clock was read between their uptimes, so the two belong
/// together. Between them this thread may have lost its turn.
fn careful(read: &impl Fn() -> Reading) -> Reading {
    let mut reading = read();
    for _ in 1..READINGS_MAX {
        let again = read();
        let is_tight = again.up - reading.up <= READ_WITHIN;
        reading = again;
        if is_tight {
            break;
        }
    }
    reading
}

fn tell(change: &ClockChange) {
    match *change {
        ClockChange::Stepped { from, to } => {
            let by = to.since(from).max(from.since(to));
            let direction = if from < to { "forward" } else { "back" };
            let (from, to) = (from.to_rfc3339(), to.to_rfc3339());
            tracing::warn!(from, to, %by, direction, "the wall clock was set; schedules, windows and retention are not affected");
        }
        ClockChange::Paused { seemed, counted } => {
            tracing::warn!(%seemed, %counted, "by the clocks, Doorstep did not run for a long time; delivery windows and retention run on as if it had been {counted}");
        }
        ClockChange::WentBack { from, to } => {
            let (by, from, to) = (from.since(to), from.to_rfc3339(), to.to_rfc3339());
            tracing::warn!(from, to, %by, "the wall clock shows an earlier time than when Doorstep last ran; schedules, windows and retention go on from there");
        }
    }
}

fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = |span: Duration| i64::try_from(millis(span).0).unwrap_or(i64::MAX);
    Timestamp(since_epoch.map_or_else(|before| -ms(before.duration()), ms))
}

/// The machine's clocks, and the name of its present start.
fn machine() -> (impl Fn() -> Reading + Send + Sync + Clone + 'static, Option<String>) {
    let up = uptime();
    let read = move || Reading { wall: wall(), up: up() };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned());
    (read, boot.filter(|_| since_boot().is_some()))
}

/// Counts the time that the machine is suspended too, where the system can.
fn uptime() -> impl Fn() -> Millis + Send + Sync + Copy + 'static {
    let started = Instant::now();
    move || millis(since_boot().unwrap_or_else(|| started.elapsed()))
}

/// Read so often that 128 bits, as `as_millis` takes them, are felt.
fn millis(span: Duration) -> Millis {
    Millis(span.as_secs().saturating_mul(1_000).saturating_add(span.subsec_millis().into()))
}

#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    /// Clocks that a test sets.
    fn set_by_hand() -> (Arc<(AtomicI64, AtomicU64)>, Clock) {
        let set = Arc::new((AtomicI64::new(1_000_000), AtomicU64::new(50)));
        let shown = Arc::clone(&set);
        let read = move || Reading {
            wall: Timestamp(shown.0.load(Ordering::SeqCst)),
            up: Millis(shown.1.load(Ordering::SeqCst)),
        };
        (set, Clock::resume_with(read, None, KeptClock::default()))
    }

    #[test]
    fn the_wall_clock_is_followed_and_schedules_are_not_moved() {
        let (set, clock) = set_by_hand();
        let noted = clock.now();
        set.0.fetch_add(259_200_000, Ordering::SeqCst);
        set.1.fetch_add(10, Ordering::SeqCst);
        assert_eq!(clock.look(), Now { at: noted + Millis(10), wall: Timestamp(260_200_000) });
        assert_eq!(clock.timeline().shown(noted + Millis(10)), Timestamp(260_200_000));
        assert_eq!(clock.changes(), 1);
        clock.look();
        assert_eq!(clock.changes(), 1);
    }

    #[test]
    fn the_machines_clocks_pass_and_agree_with_each_other() {
        let clock = Clock::start();
        let (before, wall_before) = (clock.look(), wall());
        let after = clock.look();
        assert!(before.at <= after.at && after.wall.since(wall_before) < Millis::from_secs(60));
        let shown = clock.timeline().shown(after.at);
        assert!(shown.since(after.wall).max(after.wall.since(shown)) <= doorstep_core::clock::TOLERANCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_hears_within_a_second_that_a_suspended_machine_is_awake() {
        let (set, clock) = set_by_hand();
        let (due, began) = (clock.now() + Millis::from_mins(30), tokio::time::Instant::now());
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(due).await }
        });
        tokio::task::yield_now().await;
        // Timers stand still meanwhile, and the machine's clocks do not.
        set.0.fetch_add(2_000_000, Ordering::SeqCst);
        set.1.fetch_add(2_000_000, Ordering::SeqCst);
        sleeper.await.unwrap();
        assert!(began.elapsed() <= NAP_MAX, "{:?}", began.elapsed());
    }
}
