use std::{error::Error, fmt, str::FromStr};

/// Defines a number of limited range.
macro_rules! identity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            #[doc = concat!("The largest, ", $max, ".")]
            pub const MAX: Self = Self($max);

            #[doc = concat!("The ", $what, " of this number, which is at most ", $max, ".")]
            ///
            /// # Errors
            ///
            /// [`IdentityError`] when it is more. Nothing is wrapped round: that would make two the same.
            pub const fn new(number: $inner) -> Result<Self, IdentityError> {
                if number <= $max { Ok(Self(number)) } else { Err(IdentityError { what: $what, max: $max }) }
            }

            /// The number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl TryFrom<$inner> for $name {
            type Error = IdentityError;

            fn try_from(number: $inner) -> Result<Self, IdentityError> {
                Self::new(number)
            }
        }

        impl FromStr for $name {
            type Err = IdentityError;

            fn from_str(text: &str) -> Result<Self, IdentityError> {
                text.parse().map_err(|_| IdentityError { what: $what, max: $max }).and_then(Self::new)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identity! {
    /// Tells apart up to 64 makers of ids on one node, in the layout of 1.3.0rc22 and later.
    ProcessId(u8), "process id", 63
}

identity! {
    /// Tells apart up to 1,024 makers of ids, in the layout before 1.3.0rc22.
    MachineId(u16), "machine id", 1023
}

identity! {
    /// One number that names a maker of ids in both layouts: 0 to 1020.
    ///
    /// In the layout before 1.3.0rc22 it is the machine id. In the later one it is split into the node,
    /// `slot / 64`, and the process, `slot % 64`; all 1,021 slots stay distinct (contract, section 5).
    WorkerSlot(u16), "worker slot", 1020
}

impl WorkerSlot {
    /// Its machine id, for the layout before 1.3.0rc22.
    pub const fn machine(self) -> MachineId {
        MachineId(self.0)
    }

    /// Its node, for the layout of 1.3.0rc22 and later: 0 to 15.
    pub const fn node(self) -> u8 {
        (self.0 / 64) as u8
    }

    /// Its process, for the layout of 1.3.0rc22 and later.
    pub const fn process(self) -> ProcessId {
        ProcessId((self.0 % 64) as u8)
    }
}

impl From<WorkerSlot> for MachineId {
    fn from(slot: WorkerSlot) -> Self {
        slot.machine()
    }
}

/// A number that is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityError {
    what: &'static str,
    max: u16,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} has to be a whole number from 0 to {}", self.what, self.max)
    }
}

impl Error for IdentityError {}
