//! Method and path of a request to the cloud service become a [`Route`].
