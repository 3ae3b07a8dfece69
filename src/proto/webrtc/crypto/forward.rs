//! What every layer of DTLS answers in the words of the one below it.
//!
//! In: a field `dtls`. Out: those methods of str0m's `DtlsInstance` that tell or end the state of
//! the association, which no layer changes, and the name in `Debug`. What a layer does itself, it
//! writes.

/// Writes the methods into an `impl DtlsInstance`.
macro_rules! forward_state {
    () => {
        fn is_active(&self) -> bool {
            self.dtls.is_active()
        }

        fn protocol_version(&self) -> Option<str0m::crypto::dtls::ProtocolVersion> {
            self.dtls.protocol_version()
        }

        fn is_closing(&self) -> bool {
            self.dtls.is_closing()
        }

        fn is_closed(&self) -> bool {
            self.dtls.is_closed()
        }

        fn close(&mut self) -> Result<(), str0m::crypto::dtls::DtlsImplError> {
            self.dtls.close()
        }
    };
}

/// Writes `Debug` for a layer, by its name alone: keys are in it.
macro_rules! opaque_debug {
    ($layer:ident) => {
        impl std::fmt::Debug for $layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($layer))
            }
        }
    };
}

pub(super) use {forward_state, opaque_debug};
