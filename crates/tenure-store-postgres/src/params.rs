//! Parameters of statements, each with its type: a statement is sent unnamed in one message.

use tenure_core::TenantId;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// A parameter and its type.
#[derive(Debug)]
pub(crate) struct Param<'a> {
    value: Box<dyn ToSql + Send + Sync + 'a>,
    kind: Type,
}

impl<'a> Param<'a> {
    pub(crate) fn of<T: Typed + 'a>(value: &T) -> Self {
        Self { value: Box::new(value.clone()), kind: T::TYPE }
    }

    /// As the driver takes it.
    pub(crate) fn pair(&self) -> (&(dyn ToSql + Sync), Type) {
        (&*self.value, self.kind.clone())
    }
}

/// Knows its type in the database.
pub(crate) trait Typed: ToSql + Clone + Send + Sync {
    const TYPE: Type;
}

macro_rules! typed {
    ($($kind:ty: $name:ident, $many:ident;)*) => {
        $(impl Typed for $kind {
            const TYPE: Type = Type::$name;
        }
        impl Typed for Option<$kind> {
            const TYPE: Type = Type::$name;
        }
        impl Typed for Vec<$kind> {
            const TYPE: Type = Type::$many;
        }
        impl Typed for Vec<Option<$kind>> {
            const TYPE: Type = Type::$many;
        })*
    };
}

typed! {
    i16: INT2, INT2_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    bool: BOOL, BOOL_ARRAY;
    String: TEXT, TEXT_ARRAY;
    Uuid: UUID, UUID_ARRAY;
    Vec<u8>: BYTEA, BYTEA_ARRAY;
}

impl Typed for &str {
    const TYPE: Type = Type::TEXT;
}

/// Parameters of a statement, in order.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::params::Param::of(&$value)),*]
    };
}
pub(crate) use params;

/// An id as the database keeps it.
pub(crate) fn key(bits: u128) -> Uuid {
    Uuid::from_u128(bits)
}

/// A number as the database keeps it.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The name of a tenant as the database keeps it: its texts have no NUL.
pub(crate) fn tenant_text(tenant: &TenantId) -> String {
    escaped(&tenant.0)
}

/// The name of a tenant from the database.
pub(crate) fn tenant_of(text: &str) -> TenantId {
    let (mut name, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => name.push(if letters.next() == Some('0') { '\0' } else { '\\' }),
            other => name.push(other),
        }
    }
    TenantId(name)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\0', "\\0")
}

/// A limit as the database takes it.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_tenant_comes_back() {
        for name in ["acme", "", "a\0b", "\\0", "\\", "\0\\\0", "\\\\0"] {
            let tenant = TenantId(name.to_owned());
            let text = tenant_text(&tenant);
            assert!(!text.contains('\0'), "{text:?}");
            assert_eq!(tenant_of(&text), tenant);
        }
        assert_eq!(tenant_text(&TenantId("acme".to_owned())), "acme");
    }
}
